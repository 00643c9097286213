//! Rust bindings of the contract, generated from `wit/`.

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
                export tollgate:admission/lifecycle@0.1.0;
            }
        ",
        world: "tollgate:host/every-plugin",
        exports: { default: async },
    });
}

/// Bindings for the interface that mutators export in addition.
pub mod every_mutator {
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "
            package tollgate:host;
            world every-mutator {
                export tollgate:admission/mutating@0.1.0;
            }
        ",
        world: "tollgate:host/every-mutator",
        exports: { default: async },
        with: { "tollgate:admission/types@0.1.0": super::every_plugin::tollgate::admission::types },
    });
}

/// Bindings for the interface that validators export in addition.
pub mod every_validator {
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "
            package tollgate:host;
            world every-validator {
                export tollgate:admission/validating@0.1.0;
            }
        ",
        world: "tollgate:host/every-validator",
        exports: { default: async },
        with: { "tollgate:admission/types@0.1.0": super::every_plugin::tollgate::admission::types },
    });
}

pub use every_mutator::EveryMutatorIndices;
pub use every_plugin::EveryPluginIndices;
pub use every_plugin::tollgate::admission::{access, clock, cluster, logging, review, types};
pub use every_validator::EveryValidatorIndices;
