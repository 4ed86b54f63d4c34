//! Enums whose values have stable names. Each name is written once, beside its value.

/// Defines an enum, the list of its values, and the stable name of each.
macro_rules! labelled_enum {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $label:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $name {
            /// Every value, in the order of the documentation.
            pub const ALL: [Self; [$($label),+].len()] = [$(Self::$variant),+];

            /// Returns the stable name, for logs, metrics, headers and the admin API.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$variant => $label),+ }
            }
        }
    };
}

pub(crate) use labelled_enum;
