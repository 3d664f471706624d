//! The limits on memory, cores and processes of the control group of this process, what is left of them, and how many of its processes the kernel
//! killed for lack of memory: version 2, and the controllers of version 1.

use std::fs;
use std::path::{Path, PathBuf};

/// "No limit" of version 1 is a page less than 2^63, and no machine has as much as this.
const UNLIMITED_BYTES: u64 = 1 << 60;

/// A control group of this process, and its ancestors as far as this process sees them.
#[derive(Clone, Debug)]
struct ControlGroup {
    /// The folder where the hierarchy is mounted.
    mount: PathBuf,
    /// The group's own folder, in `mount`.
    folder: PathBuf,
    /// It is of version 2, whose one hierarchy has all controllers.
    is_unified: bool,
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
        let groups = own_groups("memory");
        let files = groups.iter().map(|group| {
            group
                .folder
                .join(group.named("memory.events", "memory.oom_control"))
        });
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

/// The part of a limit that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitLeft {
    /// So much is not used,
    pub left: u64,
    /// of so much.
    pub max: u64,
}

/// For how much of the last ten seconds threads have waited for memory, in percent, rounded up (`avg10` in the kernel's
/// `Documentation/accounting/psi.rst`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStalls {
    /// Some thread has.
    pub some_percent: u16,
    /// All threads that had work have, at once.
    pub full_percent: u16,
}

fn kills_in(file: &Path) -> Option<u64> {
    kills(&fs::read_to_string(file).ok()?)
}

fn kills(text: &str) -> Option<u64> {
    counted(text, "oom_kill ")
}

/// The number in the line that begins so.
fn counted(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    let count = lines.find_map(|line| line.strip_prefix(name))?;
    count.trim().parse().ok()
}

impl ControlGroup {
    /// The name of a file by the version.
    fn named(&self, unified: &'static str, version_1: &'static str) -> &'static str {
        if self.is_unified { unified } else { version_1 }
    }

    /// The folders of this group and its ancestors.
    fn folders(&self) -> impl Iterator<Item = &Path> {
        let inside = self.folder.ancestors();
        inside.take_while(|folder| folder.starts_with(&self.mount))
    }

    /// The least memory limit of this group and its ancestors, in bytes; `None` if there is none, or no such controller.
    fn memory_limit_bytes(&self) -> Option<u64> {
        let name = self.named("memory.max", "memory.limit_in_bytes");
        let limits = self.folders().filter_map(|folder| {
            let text = fs::read_to_string(folder.join(name)).ok()?;
            limit(&text)
        });
        limits.min()
    }

    /// The memory that is left, in bytes, of the group or ancestor that has least. Pages of files are free for others: the kernel takes them
    /// back, and where that costs too much, threads stall, which counts by itself ([`memory_stalls`]).
    fn memory_left(&self) -> Option<LimitLeft> {
        let limits: &[&str] = if self.is_unified {
            &["memory.max", "memory.high"]
        } else {
            &["memory.limit_in_bytes"]
        };
        let current = self.named("memory.current", "memory.usage_in_bytes");
        let files = [
            self.named("inactive_file ", "total_inactive_file "),
            self.named("active_file ", "total_active_file "),
        ];
        let lefts = self.folders().filter_map(|folder| {
            let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
            let max = limits.iter().filter_map(|name| limit(&read(name)?)).min()?;
            let used = read(current)?.trim().parse::<u64>().ok()?;
            let stat = read("memory.stat").unwrap_or_default();
            let free = files.iter().filter_map(|name| counted(&stat, name));
            let free = free.fold(0, u64::saturating_add);
            let left = max.saturating_sub(used.saturating_sub(free));
            Some(LimitLeft { left, max })
        });
        lefts.min_by_key(|one| one.left)
    }

    /// The same of processes and threads.
    fn tasks_left(&self) -> Option<LimitLeft> {
        let lefts = self.folders().filter_map(|folder| {
            let read = |name| fs::read_to_string(folder.join(name)).ok();
            // "max" is no number.
            let max = read("pids.max")?.trim().parse::<u64>().ok()?;
            let used = read("pids.current")?.trim().parse::<u64>().ok()?;
            let left = max.saturating_sub(used);
            Some(LimitLeft { left, max })
        });
        lefts.min_by_key(|one| one.left)
    }

    /// The least number of cores that this group and its ancestors may use; `None` if there is no limit, or no such controller.
    fn cpu_limit(&self) -> Option<f64> {
        let limits = self.folders().filter_map(|folder| {
            let read = |name| fs::read_to_string(folder.join(name)).ok();
            let text = if self.is_unified {
                read("cpu.max")?
            } else {
                read("cpu.cfs_quota_us")? + " " + &read("cpu.cfs_period_us")?
            };
            cpus(&text)
        });
        limits.min_by(f64::total_cmp)
    }
}

/// The least memory limit of all groups of this process, in bytes, as /proc/self/cgroup and /proc/self/mountinfo name them
/// (cgroups(7), proc(5)); `None` if there is none. A system may have both versions, of which one has the memory controller.
pub fn memory_limit_bytes() -> Option<u64> {
    let groups = own_groups("memory");
    let limits = groups.iter();
    limits.filter_map(ControlGroup::memory_limit_bytes).min()
}

/// The least number of cores that the groups of this process may use, such as 1.5 (`cpu.max` in the kernel's
/// `Documentation/admin-guide/cgroup-v2.rst`); `None` if there is no limit.
pub fn cpu_limit() -> Option<f64> {
    let groups = own_groups("cpu");
    let limits = groups.iter().filter_map(ControlGroup::cpu_limit);
    limits.min_by(f64::total_cmp)
}

/// The memory that the groups of this process leave, in bytes; `None` if they do not limit it.
pub fn memory_left() -> Option<LimitLeft> {
    let groups = own_groups("memory");
    let lefts = groups.iter().filter_map(ControlGroup::memory_left);
    lefts.min_by_key(|one| one.left)
}

/// The processes and threads that the groups of this process leave; `None` if they do not limit them.
pub fn tasks_left() -> Option<LimitLeft> {
    let groups = own_groups("pids");
    let lefts = groups.iter().filter_map(ControlGroup::tasks_left);
    lefts.min_by_key(|one| one.left)
}

/// For how much of the last ten seconds threads of this process's group have waited for memory. Version 1, and the group of the whole machine, have
/// no file of their own, so there the machine's counts. None is known of a kernel that does not measure it.
pub fn memory_stalls() -> MemoryStalls {
    let groups = own_groups("memory");
    let own = groups.iter().filter(|group| group.is_unified);
    let files = own.map(|group| group.folder.join("memory.pressure"));
    let mut files = files.chain([PathBuf::from("/proc/pressure/memory")]);
    let text = files.find_map(|file| fs::read_to_string(file).ok());
    text.map_or_else(MemoryStalls::default, |text| stalls(&text))
}

/// Reads lines such as `some avg10=0.12 avg60=0.00 avg300=0.00 total=43309`.
fn stalls(text: &str) -> MemoryStalls {
    let percent = |name: &str| {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(name))?;
        let average = line.strip_prefix(" avg10=")?.split(' ').next()?;
        Some(average.parse::<f32>().ok()?.ceil() as u16)
    };
    MemoryStalls {
        some_percent: percent("some").unwrap_or(0),
        full_percent: percent("full").unwrap_or(0),
    }
}

/// The groups that limit this process by a controller.
fn own_groups(controller: &str) -> Vec<ControlGroup> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    named_in(
        &read("/proc/self/cgroup"),
        &read("/proc/self/mountinfo"),
        controller,
    )
}

/// Reads `QUOTA PERIOD`. Without a limit the quota is "max", or less than 0 in version 1.
fn cpus(text: &str) -> Option<f64> {
    let mut words = text.split_ascii_whitespace().map(str::parse::<u32>);
    let (quota_us, period_us) = (words.next()?.ok()?, words.next()?.ok()?);
    (period_us > 0).then(|| f64::from(quota_us) / f64::from(period_us))
}

/// Reads a limit file. A file of version 2 says "max" if there is no limit.
fn limit(text: &str) -> Option<u64> {
    let bytes = text.trim().parse().ok()?;
    (bytes < UNLIMITED_BYTES).then_some(bytes)
}

/// The groups with this controller, named by the texts of /proc/self/cgroup (`hierarchy:controllers:path` in each line) and of
/// /proc/self/mountinfo.
fn named_in(cgroups: &str, mounts: &str, controller: &str) -> Vec<ControlGroup> {
    let membership = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let is_unified = controllers.is_empty();
        if !is_unified && !names(controllers, controller) {
            return None;
        }
        let mut places = mounts.lines();
        let (root, mount) = places.find_map(|mount| mounted(mount, is_unified, controller))?;
        // In a container without a namespace of control groups the mount shows a part of the hierarchy: its root is in `root`.
        let below = Path::new(path).strip_prefix(&root).ok();
        // A path that leads upwards is outside of what this process can see (cgroup_namespaces(7)).
        let below = below.filter(|below| !below.starts_with(".."));
        Some(ControlGroup {
            folder: below.map_or_else(|| mount.clone(), |below| mount.join(below)),
            mount,
            is_unified,
        })
    };
    cgroups.lines().filter_map(membership).collect()
}

/// Whether a list of controllers has this one.
fn names(controllers: &str, controller: &str) -> bool {
    controllers.split(',').any(|name| name == controller)
}

/// Root and place of the mount of a hierarchy: `ID PARENT DEVICE ROOT PLACE OPTIONS … - KIND SOURCE SUPER_OPTIONS`.
fn mounted(line: &str, is_unified: bool, controller: &str) -> Option<(PathBuf, PathBuf)> {
    let (place, what) = line.split_once(" - ")?;
    let mut what = what.split(' ');
    let kind = what.next()?;
    let has_controller = what
        .nth(1)
        .is_some_and(|options| names(options, controller));
    let is_it = match kind {
        "cgroup2" => is_unified,
        "cgroup" => !is_unified && has_controller,
        _ => false,
    };
    if !is_it {
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
            let found = named_in(cgroups, mounts, "memory");
            let found: Vec<_> = found.iter().map(|group| group.folder.as_path()).collect();
            let folders: Vec<_> = folders.iter().map(Path::new).collect();
            assert_eq!(found, folders, "{cgroups}");
        }
        let both = "4:cpu,cpuacct:/c\n0::/u\n";
        let found = named_in(both, V1, "cpu");
        let found: Vec<_> = found.iter().map(|group| &group.folder).collect();
        let folders = ["/sys/fs/cgroup/cpu/c", "/sys/fs/cgroup/unified/u"];
        assert_eq!(found, folders.map(PathBuf::from).iter().collect::<Vec<_>>());
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
        let group = ControlGroup {
            mount: mount.clone(),
            folder: folder.clone(),
            is_unified: true,
        };
        fs::write(folder.join("cpu.max"), "max 100000\n").unwrap();
        assert_eq!(group.cpu_limit(), None);
        fs::write(mount.join("pod/cpu.max"), "150000 100000\n").unwrap();
        assert_eq!(group.cpu_limit(), Some(1.5));
        fs::write(mount.join("cpu.max"), "400000 100000\n").unwrap();
        assert_eq!(group.cpu_limit(), Some(1.5));
        let version_1 = ControlGroup {
            is_unified: false,
            ..group.clone()
        };
        assert_eq!(version_1.cpu_limit(), None);
        for (quota_us, limit) in [("-1", None), ("50000", Some(0.5))] {
            fs::write(folder.join("cpu.cfs_quota_us"), quota_us).unwrap();
            fs::write(folder.join("cpu.cfs_period_us"), "100000\n").unwrap();
            assert_eq!(version_1.cpu_limit(), limit, "{quota_us}");
        }
        assert_eq!(group.memory_limit_bytes(), None);
        fs::write(folder.join("memory.max"), "max\n").unwrap();
        assert_eq!(group.memory_limit_bytes(), None);
        fs::write(mount.join("pod/memory.max"), "536870912\n").unwrap();
        assert_eq!(group.memory_limit_bytes(), Some(512 << 20));
        fs::write(folder.join("memory.max"), "9223372036854771712\n").unwrap();
        assert_eq!(group.memory_limit_bytes(), Some(512 << 20));
        fs::write(folder.join("memory.max"), "1048576\n").unwrap();
        assert_eq!(group.memory_limit_bytes(), Some(1 << 20));
        fs::remove_dir_all(&mount).unwrap();
    }

    /// A folder of its own for a test, which removes it.
    fn folder_of(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("stanchion-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("pod")).unwrap();
        folder
    }

    #[test]
    fn the_least_that_is_left_on_the_way_up_counts() {
        let mount = folder_of("groups-left");
        let group = ControlGroup {
            mount: mount.clone(),
            folder: mount.join("pod"),
            is_unified: true,
        };
        let write = |name: &str, text: &str| fs::write(mount.join(name), text).unwrap();
        assert_eq!((group.memory_left(), group.tasks_left()), (None, None));
        write("pod/memory.max", "1000\n");
        write("pod/memory.high", "max\n");
        write("pod/memory.current", "700\n");
        write(
            "pod/memory.stat",
            "anon 300\ninactive_file 200\nactive_file 50\n",
        );
        let left = |left, max| Some(LimitLeft { left, max });
        assert_eq!(group.memory_left(), left(550, 1000));
        write("pod/memory.high", "800\n");
        assert_eq!(group.memory_left(), left(350, 800));
        write("memory.max", "2000\n");
        write("memory.current", "1900\n");
        write("memory.stat", "inactive_file 0\n");
        assert_eq!(group.memory_left(), left(100, 2000));
        write("pod/pids.max", "max\n");
        write("pod/pids.current", "40\n");
        assert_eq!(group.tasks_left(), None);
        write("pids.max", "100\n");
        write("pids.current", "101\n");
        assert_eq!(group.tasks_left(), left(0, 100));
        let version_1 = ControlGroup {
            is_unified: false,
            ..group
        };
        write("pod/memory.limit_in_bytes", "900\n");
        write("pod/memory.usage_in_bytes", "500\n");
        write(
            "pod/memory.stat",
            "inactive_file 1\ntotal_inactive_file 100\n",
        );
        assert_eq!(version_1.memory_left(), left(500, 900));
        fs::remove_dir_all(&mount).unwrap();
    }

    #[test]
    fn stalls_are_read_as_whole_percents() {
        for (text, some_percent, full_percent) in [
            (
                "some avg10=0.00 avg60=1.00 avg300=0.00 total=43309\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
                0,
                0,
            ),
            (
                "some avg10=10.01 avg60=0.00 avg300=0.00 total=1\nfull avg10=99.99 avg60=0.00 avg300=0.00 total=1\n",
                11,
                100,
            ),
            ("some avg10=nonsense\n", 0, 0),
            ("", 0, 0),
        ] {
            let expected = MemoryStalls {
                some_percent,
                full_percent,
            };
            assert_eq!(stalls(text), expected, "{text}");
        }
        memory_stalls();
    }
}
