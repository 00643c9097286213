//! The code that wit-bindgen generates from the contract.
//!
//! A component exports exactly the interfaces of its world, and there are three worlds. So each exported interface has
//! a world of its own here, and the export macros of this crate combine them. `wit-component` unites the worlds in a
//! module. Only the imports are always linked. An exported interface comes with its macro.

pub mod imports {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package tollgate:sdk-imports;
            world imports {
                import tollgate:admission/types@0.1.0;
                import tollgate:admission/review@0.1.0;
                import tollgate:admission/logging@0.1.0;
            }
        ",
        world: "tollgate:sdk-imports/imports",
        generate_all,
        generate_unused_types: true,
        additional_derives: [PartialEq],
        pub_export_macro: true,
    });
}

pub mod lifecycle {
    wit_bindgen::generate!({
        path: "wit",
        inline: "package tollgate:sdk-lifecycle; world lifecycle { export tollgate:admission/lifecycle@0.1.0; }",
        world: "tollgate:sdk-lifecycle/lifecycle",
        with: {
            "tollgate:admission/types@0.1.0": crate::bindings::imports::tollgate::admission::types,
            "tollgate:admission/lifecycle@0.1.0": generate,
        },
        pub_export_macro: true,
        export_macro_name: "export",
        default_bindings_module: "tollgate_sdk::bindings::lifecycle",
        disable_custom_section_link_helpers: true,
    });
}

pub mod mutating {
    wit_bindgen::generate!({
        path: "wit",
        inline: "package tollgate:sdk-mutating; world mutating { export tollgate:admission/mutating@0.1.0; }",
        world: "tollgate:sdk-mutating/mutating",
        with: {
            "tollgate:admission/types@0.1.0": crate::bindings::imports::tollgate::admission::types,
            "tollgate:admission/mutating@0.1.0": generate,
        },
        pub_export_macro: true,
        export_macro_name: "export",
        default_bindings_module: "tollgate_sdk::bindings::mutating",
        disable_custom_section_link_helpers: true,
    });
}

pub mod validating {
    wit_bindgen::generate!({
        path: "wit",
        inline: "package tollgate:sdk-validating; world validating { export tollgate:admission/validating@0.1.0; }",
        world: "tollgate:sdk-validating/validating",
        with: {
            "tollgate:admission/types@0.1.0": crate::bindings::imports::tollgate::admission::types,
            "tollgate:admission/validating@0.1.0": generate,
        },
        pub_export_macro: true,
        export_macro_name: "export",
        default_bindings_module: "tollgate_sdk::bindings::validating",
        disable_custom_section_link_helpers: true,
    });
}

#[cfg(feature = "clock")]
pub mod clock {
    wit_bindgen::generate!({
        path: "wit",
        inline: "package tollgate:sdk-clock; world clock-user { import tollgate:admission/clock@0.1.0; }",
        world: "tollgate:sdk-clock/clock-user",
        generate_all,
        additional_derives: [PartialEq, Eq, PartialOrd, Ord],
        pub_export_macro: true,
    });
}

#[cfg(feature = "access")]
pub mod access {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package tollgate:sdk-access;
            world access-user {
                import tollgate:admission/access@0.1.0;
                import tollgate:admission/grants@0.1.0;
            }
        ",
        world: "tollgate:sdk-access/access-user",
        generate_all,
        additional_derives: [PartialEq, Eq],
        pub_export_macro: true,
    });
}

#[cfg(feature = "images")]
pub mod images {
    wit_bindgen::generate!({
        path: "wit",
        inline: "package tollgate:sdk-images; world images-user { import tollgate:admission/images@0.1.0; }",
        world: "tollgate:sdk-images/images-user",
        generate_all,
        additional_derives: [PartialEq, Eq],
        pub_export_macro: true,
    });
}

#[cfg(feature = "cluster")]
pub mod cluster {
    wit_bindgen::generate!({
        path: "wit",
        inline: "package tollgate:sdk-cluster; world cluster-user { import tollgate:admission/cluster@0.1.0; }",
        world: "tollgate:sdk-cluster/cluster-user",
        with: {
            "tollgate:admission/types@0.1.0": crate::bindings::imports::tollgate::admission::types,
            "tollgate:admission/cluster@0.1.0": generate,
        },
        pub_export_macro: true,
    });
}
