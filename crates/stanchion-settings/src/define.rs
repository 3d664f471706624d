//! The macro by which `table.rs` spells each setting once.

/// Makes of a table of rows the struct that holds their values, `rows` with a static for each row, and the list of them all.
///
/// `name: Type = row;` with a comment before it is a row, and the rows of one group stand in braces behind its name.
macro_rules! settings {
    ($(
        $(#[$of_group:meta])*
        $group:ident: $Group:ident {
            $($(#[$doc:meta])* $field:ident: $type:ty = $row:expr;)*
        }
    )*) => {
        /// The effective value of each setting, under the setting's own name. Here stand the units; `help/` says what each setting does.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(clippy::struct_excessive_bools)] // as many as operators have switches
        pub struct Settings {
            $($($(#[$doc])* pub $field: $type,)*)*
            /// An app that is to decide that itself has turned out to be asynchronous.
            pub found_asgi: bool,
            /// Whether the operator has asked for `preload_app`, and it is more than the default.
            pub is_preload_asked_for: bool,
            /// Whether `max_client_memory` is the default, which a control group's limit may lower.
            pub bounds_clients_by_default: bool,
        }

        /// The row of each setting, under the name of its field.
        #[allow(non_upper_case_globals, clippy::wildcard_imports)]
        pub(super) mod rows {
            use super::*;

            $($(pub(crate) static $field: Row<$type> = $row.named(stringify!($field));)*)*
        }

        /// Every setting.
        static TABLE: &[&Setting] = &[$($(&rows::$field.setting,)*)*];

        impl Settings {
            /// The typed form of values, each of its setting's kind.
            pub(super) fn of(values: &Values) -> Self {
                let preload = &values[rows::preload_app.setting.name];
                let memory = &values[rows::max_client_memory.setting.name];
                Self {
                    $($($field: rows::$field.of(values),)*)*
                    found_asgi: false,
                    is_preload_asked_for: !preload.is_default() && preload.value == true,
                    bounds_clients_by_default: memory.is_default(),
                }
            }

            /// The settings that have another value in `new`.
            pub(super) fn changed<'a>(&'a self, new: &'a Self) -> impl Iterator<Item = &'static Setting> + 'a {
                let is_changed = [$($((&rows::$field.setting, self.$field != new.$field),)*)*];
                is_changed.into_iter().filter(|(_, is)| *is).map(|(setting, _)| setting)
            }
        }
    };
}

pub(super) use settings;
