//! Enums whose values have stable names. Each name is written once, beside its value and its meaning.

/// An enum whose values have stable names.
pub trait Labelled: Copy + 'static {
    /// Name, value and meaning of each, in the order of the documentation.
    const LABELS: &'static [(&'static str, Self, &'static str)];

    /// Returns the value of a name.
    fn from_label(label: &str) -> Option<Self> {
        let named = Self::LABELS.iter().find(|(known, ..)| *known == label);
        named.map(|(_, value, _)| *value)
    }
}

/// Defines an enum, the list of its values, and the stable name of each. `= VALUE` after its name is its default.
#[macro_export]
macro_rules! labelled_enum {
    ($(#[$doc:meta])* pub enum $name:ident $(= $default:ident)? {
        $($(#[doc = $meaning:literal])+ $variant:ident = $label:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[doc = $meaning])+ $variant,)+ }

        impl $name {
            /// Every value, in the order of the documentation.
            pub const ALL: [Self; [$($label),+].len()] = [$(Self::$variant),+];

            /// Returns the stable name, for logs, metrics, headers, the configuration and the admin API.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$variant => $label),+ }
            }
        }

        impl $crate::labels::Labelled for $name {
            const LABELS: &'static [(&'static str, Self, &'static str)] =
                &[$(($label, Self::$variant, concat!($($meaning),+))),+];
        }

        $(impl Default for $name {
            fn default() -> Self {
                Self::$default
            }
        })?
    };
}

pub use labelled_enum;
