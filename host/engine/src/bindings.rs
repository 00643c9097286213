//! Rust bindings of the contract, generated from `wit/`. `export` finds `mutate` and `validate`.

/// Bindings for every plugin: the imports that each may use, and the lifecycle that each exports.
pub mod every_plugin {
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "
            package tollgate:host;
            world every-plugin {
                import tollgate:admission/review@0.1.0;
                import tollgate:admission/logging@0.1.0;
                import tollgate:admission/clock@0.1.0;
                import tollgate:admission/cluster@0.1.0;
                import tollgate:admission/access@0.1.0;
                import tollgate:admission/grants@0.1.0;
                import tollgate:admission/images@0.1.0;
                export tollgate:admission/lifecycle@0.1.0;
            }
        ",
        world: "tollgate:host/every-plugin",
        exports: { default: async },
        additional_derives: [PartialEq],
    });
}

pub use every_plugin::EveryPluginIndices;
pub use every_plugin::tollgate::admission::{
    access, clock, cluster, images, logging, review, types,
};
