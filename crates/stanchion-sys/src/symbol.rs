//! Where data with a name lies in this process (dlsym(3), dladdr(3)).

use std::ffi::CStr;
use std::ops::Range;

/// The addresses of the data that a library of this process exports by this name; `None` if there are none, or if the C library does
/// not know how long the data are: only glibc does, and here that of 64 bits.
#[cfg(all(target_env = "gnu", target_pointer_width = "64"))]
pub fn extent(name: &CStr) -> Option<Range<usize>> {
    use std::mem::MaybeUninit;
    use std::ptr;

    /// `RTLD_DL_SYMENT` in `dlfcn.h`: dladdr1(3) gives the entry of the symbol table.
    const RTLD_DL_SYMENT: libc::c_int = 1;

    // SAFETY: the name ends with a zero, and the call only looks it up.
    let start = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if start.is_null() {
        return None;
    }
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    let mut entry = ptr::null_mut();
    // SAFETY: both pointers are live for the call, which writes to them only.
    let found = unsafe { libc::dladdr1(start, info.as_mut_ptr(), &raw mut entry, RTLD_DL_SYMENT) };
    if found == 0 || entry.is_null() {
        return None;
    }
    // SAFETY: zeroes are valid for `Dl_info`, whose fields are pointers that may be null. With this flag the entry is one of the
    // symbol table of a loaded library, which stays mapped as long as the library: its data are in use.
    let (found, symbol) = unsafe {
        (
            info.assume_init().dli_saddr,
            &*entry.cast::<libc::Elf64_Sym>(),
        )
    };
    let len = usize::try_from(symbol.st_size).ok()?;
    (found == start).then(|| start.addr()..start.addr() + len)
}

/// As above.
#[cfg(not(all(target_env = "gnu", target_pointer_width = "64")))]
pub fn extent(_name: &CStr) -> Option<Range<usize>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_a_library_have_a_length_and_a_name_that_does_not_exist_has_none() {
        // glibc's `environ`.
        let found = extent(c"environ");
        if cfg!(all(target_env = "gnu", target_pointer_width = "64")) {
            assert_eq!(found.expect("it is there").len(), size_of::<usize>());
        }
        assert_eq!(extent(c"stanchion_has_no_such_name"), None);
    }
}
