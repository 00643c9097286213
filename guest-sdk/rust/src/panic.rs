//! Reports panics to the host, so that the operator reads their text and place. A trap alone says only `unreachable`.

/// Installs the panic hook. `describe` and `configure` call this function first. Every review begins with the memory that
/// `configure` leaves.
pub(crate) fn install() {
    #[cfg(target_arch = "wasm32")]
    std::panic::set_hook(Box::new(abort));
}

#[cfg(target_arch = "wasm32")]
fn abort(panic: &std::panic::PanicHookInfo<'_>) {
    use crate::bindings::imports::tollgate::admission::logging::Location;

    let at = panic.location().map(|location| Location {
        file: location.file().to_owned(),
        line: location.line(),
        column: location.column(),
    });
    crate::host::abort(
        panic.payload_as_str().unwrap_or("a panic without a text"),
        at.as_ref(),
    );
}
