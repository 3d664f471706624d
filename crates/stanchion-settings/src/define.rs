//! The macro by which `table.rs` spells each setting once.

/// Makes of a table of rows a struct for the values of each group, `rows` with a static for each row, and the list of them all.
///
/// `name: Type = row;` with a comment before it is a row, and the rows of one group stand in braces behind its name.
macro_rules! settings {
    ($(
        $(#[$of_group:meta])*
        $group:ident: $Group:ident {
            $($(#[$doc:meta])* $field:ident: $type:ty = $row:expr;)*
        }
    )*) => {
        $(
            $(#[$of_group])*
            #[derive(Clone, Debug, PartialEq)]
            #[allow(clippy::struct_excessive_bools)] // as many as operators have switches
            pub struct $Group {
                $($(#[$doc])* pub $field: $type,)*
            }
        )*

        /// The effective value of each setting, under the setting's own name in a group. Here stand the units; `help/` says what each setting does.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Settings {
            $($(#[$of_group])* pub $group: $Group,)*
            /// Facts on values that no row holds.
            pub facts: SettingsFacts,
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
                Self {
                    $($group: $Group { $($field: rows::$field.of(values),)* },)*
                    facts: SettingsFacts::of(values),
                }
            }

            /// The settings that have another value in `new`.
            pub(super) fn changed<'a>(&'a self, new: &'a Self) -> impl Iterator<Item = &'static Setting> + 'a {
                let is_changed = [$($((&rows::$field.setting, self.$group.$field != new.$group.$field),)*)*];
                is_changed.into_iter().filter(|(_, is)| *is).map(|(setting, _)| setting)
            }
        }
    };
}

pub(super) use settings;
