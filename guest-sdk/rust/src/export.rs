//! Exports a policy as a component, with one macro for each world of the contract.

use std::marker::PhantomData;

use crate::bindings::imports::tollgate::admission::types;
use crate::bindings::{lifecycle, mutating, validating};
use crate::{Manifest, Mutate, Mutation, Plugin, Review, Validate, panic, settings};

/// Implements the interfaces of the contract for a policy.
pub struct Component<P>(PhantomData<P>);

// === impl Component ===

impl<P: Plugin> lifecycle::exports::tollgate::admission::lifecycle::Guest for Component<P> {
    fn describe() -> Manifest {
        panic::install();
        P::manifest()
    }

    fn configure(settings: String) -> types::Configured {
        panic::install();
        configuring(|| configure::<P>(settings))
    }
}

impl<P: Plugin + Mutate> mutating::exports::tollgate::admission::mutating::Guest for Component<P> {
    fn mutate() -> types::Mutation {
        Mutation::answer(with_policy(|policy: &P| policy.mutate(&Review::ambient())))
    }
}

impl<P: Plugin + Validate> validating::exports::tollgate::admission::validating::Guest
    for Component<P>
{
    fn validate() -> types::Verdict {
        match with_policy(|policy: &P| policy.validate(&Review::ambient())) {
            Ok(()) => types::Verdict::Allow,
            Err(denial) => types::Verdict::Deny(denial),
        }
    }
}

/// Configures the policy. Takes the text by value, so that it is freed from the memory that reviews start from.
fn configure<P: Plugin>(settings: String) -> types::Configured {
    let policy = settings::configure::<P>(&settings);
    drop(settings);
    match policy {
        Ok(policy) => {
            P::slot().with(|slot| slot.replace(Some(policy)));
            types::Configured::Accepted
        }
        Err(errors) => types::Configured::Rejected(errors.into()),
    }
}

/// Runs work that is part of `configure`.
fn configuring<T>(work: impl FnOnce() -> T) -> T {
    #[cfg(all(
        target_family = "wasm",
        target_os = "unknown",
        feature = "bump-allocator"
    ))]
    return crate::allocator::configuring(work);
    #[cfg(not(all(
        target_family = "wasm",
        target_os = "unknown",
        feature = "bump-allocator"
    )))]
    work()
}

fn with_policy<P: Plugin, T>(call: impl FnOnce(&P) -> T) -> T {
    P::slot().with(|slot| {
        call(
            slot.borrow()
                .as_ref()
                .expect("`configure` was called before any review"),
        )
    })
}

/// Checks at compile time that a policy implements the trait, where the macros export nothing. So a native build fails
/// like the real one.
pub const fn check_mutator<P: Plugin + Mutate>() {}

/// Like [`check_mutator`], for validators.
pub const fn check_validator<P: Plugin + Validate>() {}

/// Exports a policy that changes objects: the world `mutator`.
///
/// The first argument is the type that implements [`Policy`](crate::Policy) and [`Mutate`](crate::Mutate). The other
/// arguments are functions of [`Manifest`](crate::Manifest) with their arguments: `rules`, `settings_schema`, `labels`,
/// `description`, `name`, `version`. They are optional and may come in any order. The defaults of the last three come
/// from the package. A crate exports one policy.
///
/// ```
/// use tollgate_sdk::prelude::*;
///
/// struct Frozen;
///
/// #[derive(serde::Deserialize)]
/// struct Settings {}
///
/// impl Policy for Frozen {
///     type Settings = Settings;
///
///     fn configure(_: Settings) -> Result<Self, SettingsErrors> {
///         Ok(Self)
///     }
/// }
///
/// impl Mutate for Frozen {
///     fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
///         Ok(Patch::new().set(review.object(), "/metadata/annotations/frozen", "yes").into())
///     }
/// }
///
/// tollgate_sdk::mutator! {
///     Frozen,
///     rules: [Rule::on([Operation::Create], "", "v1", ["configmaps"])],
///     labels: [("licence", "Apache-2.0")],
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! mutator {
    ($policy:ty $(, $key:ident : $value:expr)* $(,)?) => {
        $crate::__plugin!($policy $(, $key: $value)*);
        const _: () = $crate::export::check_mutator::<$policy>();
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Exported = $crate::export::Component<$policy>;
            $crate::bindings::lifecycle::export!(Exported with_types_in $crate::bindings::lifecycle);
            $crate::bindings::mutating::export!(Exported with_types_in $crate::bindings::mutating);
        };
    };
}

/// Exports a policy that evaluates requests: the world `validator`. See [`mutator!`](crate::mutator) for the arguments.
/// The policy implements [`Validate`](crate::Validate).
#[macro_export]
macro_rules! validator {
    ($policy:ty $(, $key:ident : $value:expr)* $(,)?) => {
        $crate::__plugin!($policy $(, $key: $value)*);
        const _: () = $crate::export::check_validator::<$policy>();
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Exported = $crate::export::Component<$policy>;
            $crate::bindings::lifecycle::export!(Exported with_types_in $crate::bindings::lifecycle);
            $crate::bindings::validating::export!(Exported with_types_in $crate::bindings::validating);
        };
    };
}

/// Exports a policy that changes objects and evaluates requests: the world `plugin`. See [`mutator!`](crate::mutator)
/// for the arguments. The policy implements both traits.
#[macro_export]
macro_rules! plugin {
    ($policy:ty $(, $key:ident : $value:expr)* $(,)?) => {
        $crate::__plugin!($policy $(, $key: $value)*);
        const _: () = $crate::export::check_mutator::<$policy>();
        const _: () = $crate::export::check_validator::<$policy>();
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Exported = $crate::export::Component<$policy>;
            $crate::bindings::lifecycle::export!(Exported with_types_in $crate::bindings::lifecycle);
            $crate::bindings::mutating::export!(Exported with_types_in $crate::bindings::mutating);
            $crate::bindings::validating::export!(Exported with_types_in $crate::bindings::validating);
        };
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __plugin {
    ($policy:ty $(, $key:ident : $value:expr)*) => {
        impl $crate::Plugin for $policy {
            fn manifest() -> $crate::Manifest {
                $crate::Manifest::new(::core::env!("CARGO_PKG_NAME"), ::core::env!("CARGO_PKG_VERSION"))
                    .description(::core::env!("CARGO_PKG_DESCRIPTION"))
                    $(.$key($value))*
            }

            fn slot() -> &'static ::std::thread::LocalKey<::core::cell::RefCell<::core::option::Option<Self>>> {
                ::std::thread_local! {
                    static POLICY: ::core::cell::RefCell<::core::option::Option<$policy>> =
                        const { ::core::cell::RefCell::new(::core::option::Option::None) };
                }
                &POLICY
            }
        }
    };
}
