//! The size of the process's pages.

/// Has the kernel give this process small pages from here on. The allocator asks for large ones, which the small pieces of a
/// gateway leave mostly empty: with 256 requests at a time, a third of what it held. Only for a process that is nothing else.
pub fn use_small_pages() {
    // Where the kernel knows no such wish, it gives no large pages either.
    let _ = nix::sys::prctl::set_thp_disable(true);
}
