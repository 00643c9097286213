//! Gives the plugin a larger stack than other plugins have: the interpreter walks expressions recursively.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("wasm32") {
        // The last argument wins over the one in .cargo/config.toml.
        println!("cargo::rustc-link-arg-cdylib=-zstack-size=1048576");
    }
}
