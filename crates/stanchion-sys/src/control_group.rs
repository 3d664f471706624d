//! The memory limit of the control group of this process, and how many of its processes the kernel killed for lack of memory:
//! version 2, and the memory controller of version 1.

use std::fs;
use std::path::{Path, PathBuf};

/// "No limit" of version 1 is a page less than 2^63, and no machine has as much as this.
const UNLIMITED_BYTES: u64 = 1 << 60;

/// A control group with a memory controller, and its ancestors as far as this process sees them.
#[derive(Debug)]
struct MemoryGroup {
    /// The folder where the hierarchy is mounted.
    mount: PathBuf,
    /// The group's own folder, in `mount`.
    folder: PathBuf,
    /// The file with the limit.
    limit_file: &'static str,
    /// The file with the line `oom_kill COUNT`.
    kills_file: &'static str,
}

/// The files in which the kernel counts the processes that it has killed for lack of memory.
#[derive(Debug)]
pub struct OutOfMemoryKills {
    files: Vec<PathBuf>,
}

impl OutOfMemoryKills {
    /// Finds the files of this process's groups. Each file counts the killed processes of its own group, whichever limit was
    /// reached: the group's, an ancestor's, or the machine's (`memory_events` in the kernel's
    /// `Documentation/admin-guide/cgroup-v2.rst`). Without such a group this takes the count of the whole machine.
    pub fn find() -> Self {
        let groups = own_groups();
        let files = groups
            .iter()
            .map(|group| group.folder.join(group.kills_file));
        let mut files: Vec<_> = files.filter(|file| kills_in(file).is_some()).collect();
        if files.is_empty() {
            files.push("/proc/vmstat".into());
        }
        Self { files }
    }

    /// How many processes the kernel has killed. A file that cannot be read counts 0: the kernel before 4.13 does not count.
    pub fn count(&self) -> u64 {
        self.files.iter().filter_map(|file| kills_in(file)).sum()
    }
}

fn kills_in(file: &Path) -> Option<u64> {
    kills(&fs::read_to_string(file).ok()?)
}

fn kills(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let count = lines.find_map(|line| line.strip_prefix("oom_kill "))?;
    count.trim().parse().ok()
}

impl MemoryGroup {
    /// The least limit of this group and its ancestors, in bytes; `None` if there is none, or no such controller.
    fn limit_bytes(&self) -> Option<u64> {
        let inside = self.folder.ancestors();
        let inside = inside.take_while(|folder| folder.starts_with(&self.mount));
        let limits = inside.filter_map(|folder| {
            let text = fs::read_to_string(folder.join(self.limit_file)).ok()?;
            limit(&text)
        });
        limits.min()
    }
}

/// The least memory limit of all groups of this process, in bytes, as /proc/self/cgroup and /proc/self/mountinfo name them
/// (cgroups(7), proc(5)); `None` if there is none. A system may have both versions, of which one has the memory controller.
pub fn memory_limit_bytes() -> Option<u64> {
    let groups = own_groups();
    groups.iter().filter_map(MemoryGroup::limit_bytes).min()
}

fn own_groups() -> Vec<MemoryGroup> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    named_in(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))
}

/// Reads a limit file. A file of version 2 says "max" if there is no limit.
fn limit(text: &str) -> Option<u64> {
    let bytes = text.trim().parse().ok()?;
    (bytes < UNLIMITED_BYTES).then_some(bytes)
}

/// The groups named by the texts of /proc/self/cgroup (`hierarchy:controllers:path` in each line) and of
/// /proc/self/mountinfo.
fn named_in(cgroups: &str, mounts: &str) -> Vec<MemoryGroup> {
    let membership = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let has_memory = controllers.split(',').any(|name| name == "memory");
        let (kind, limit_file, kills_file) = match controllers {
            "" => ("cgroup2", "memory.max", "memory.events"),
            _ if has_memory => ("cgroup", "memory.limit_in_bytes", "memory.oom_control"),
            _ => return None,
        };
        let (root, mount) = mounts.lines().find_map(|mount| mounted(mount, kind))?;
        // In a container without a namespace of control groups the mount shows a part of the hierarchy: its root is in `root`.
        let below = Path::new(path).strip_prefix(&root).ok();
        // A path that leads upwards is outside of what this process can see (cgroup_namespaces(7)).
        let below = below.filter(|below| !below.starts_with(".."));
        Some(MemoryGroup {
            folder: below.map_or_else(|| mount.clone(), |below| mount.join(below)),
            mount,
            limit_file,
            kills_file,
        })
    };
    cgroups.lines().filter_map(membership).collect()
}

/// Root and place of a mount of this kind: `ID PARENT DEVICE ROOT PLACE OPTIONS … - KIND SOURCE SUPER_OPTIONS`.
fn mounted(line: &str, kind: &str) -> Option<(PathBuf, PathBuf)> {
    let (place, what) = line.split_once(" - ")?;
    let mut what = what.split(' ');
    let is_of_kind = what.next()? == kind;
    let has_memory = what
        .nth(1)
        .is_some_and(|options| options.split(',').any(|name| name == "memory"));
    if !is_of_kind || kind == "cgroup" && !has_memory {
        return None;
    }
    let mut place = place.split(' ').skip(3);
    Some((place.next()?.into(), place.next()?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &str = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "30 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      31 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      32 23 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const V1_IN_A_CONTAINER: &str =
        "31 23 0:28 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";

    #[test]
    fn the_kernel_names_the_folder() {
        for (cgroups, mounts, folders) in [
            ("0::/a/b\n", V2, &["/sys/fs/cgroup/a/b"][..]),
            ("0::/\n", V2, &["/sys/fs/cgroup/"]),
            ("0::/../c\n", V2, &["/sys/fs/cgroup"]),
            (
                "4:memory:/m\n1:cpu:/c\n0::/u\n",
                V1,
                &["/sys/fs/cgroup/memory/m", "/sys/fs/cgroup/unified/u"],
            ),
            (
                "4:memory,hugetlb:/docker/ab\n",
                V1_IN_A_CONTAINER,
                &["/sys/fs/cgroup/memory/"],
            ),
            (
                "4:memory:/elsewhere\n",
                V1_IN_A_CONTAINER,
                &["/sys/fs/cgroup/memory"],
            ),
            ("4:memory:/m\n", V2, &[]),
            ("0::/a\n", "", &[]),
            ("", V2, &[]),
            ("nonsense\n::\n0:\n", "nonsense\n - cgroup2\n", &[]),
        ] {
            let found = named_in(cgroups, mounts);
            let found: Vec<_> = found.iter().map(|group| group.folder.as_path()).collect();
            let folders: Vec<_> = folders.iter().map(Path::new).collect();
            assert_eq!(found, folders, "{cgroups}");
        }
    }

    #[test]
    fn the_kernel_counts_those_that_it_has_killed() {
        for (text, count) in [
            (
                "low 0\nhigh 0\nmax 12\noom 1\noom_kill 3\noom_group_kill 1\n",
                Some(3),
            ),
            ("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", Some(5)),
            // Before Linux 4.13.
            ("oom_kill_disable 0\nunder_oom 0\n", None),
            ("", None),
        ] {
            assert_eq!(kills(text), count, "{text}");
        }
        OutOfMemoryKills::find().count();
    }

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let mount = std::env::temp_dir().join(format!("stanchion-groups-{}", std::process::id()));
        let folder = mount.join("pod/container");
        fs::create_dir_all(&folder).unwrap();
        let group = MemoryGroup {
            mount: mount.clone(),
            folder: folder.clone(),
            limit_file: "memory.max",
            kills_file: "memory.events",
        };
        assert_eq!(group.limit_bytes(), None);
        fs::write(folder.join("memory.max"), "max\n").unwrap();
        assert_eq!(group.limit_bytes(), None);
        fs::write(mount.join("pod/memory.max"), "536870912\n").unwrap();
        assert_eq!(group.limit_bytes(), Some(512 << 20));
        fs::write(folder.join("memory.max"), "9223372036854771712\n").unwrap();
        assert_eq!(group.limit_bytes(), Some(512 << 20));
        fs::write(folder.join("memory.max"), "1048576\n").unwrap();
        assert_eq!(group.limit_bytes(), Some(1 << 20));
        fs::remove_dir_all(&mount).unwrap();
    }
}
