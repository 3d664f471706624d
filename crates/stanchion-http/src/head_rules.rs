//! The limits for the head of a request, and the faults that an operator can permit.

/// Limits for a head, where `usize::MAX` is no limit, and the settings that permit faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadRules {
    /// Bytes of the request line, without its end.
    pub line_bytes: usize,
    /// Bytes of one field's line, without its end.
    pub field_bytes: usize,
    /// Number of fields.
    pub fields: usize,
    /// Bytes of the whole head, without the empty line at the end.
    pub head_bytes: usize,
    /// The faults that are permitted.
    pub permits: Permits,
}

/// Faults that a client should not make, and that the operator can permit: gunicorn's settings of these names. None of them changes how a message is
/// framed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting")]
pub struct Permits {
    /// Methods that are not 3 to 20 characters without lower case and `#`.
    pub unconventional_method: bool,
    /// Versions other than 1.0 and 1.1: earlier ones are read as 1.0, later ones as 1.1.
    pub unconventional_version: bool,
    /// Methods in lower case count as their upper case.
    pub casefold_method: bool,
    /// Values that continue in the next line (RFC 9112 section 5.2), except in fields that the server itself acts on.
    pub obsolete_folding: bool,
    /// Whitespace between the name of a field and its colon, except in fields that frame the message.
    pub header_spaces: bool,
}

impl Permits {
    /// Permits no fault.
    pub const NONE: Self = Self {
        unconventional_method: false,
        unconventional_version: false,
        casefold_method: false,
        obsolete_folding: false,
        header_spaces: false,
    };
}

impl HeadRules {
    /// The limits of the server's settings where an operator has set none.
    pub const DEFAULT: Self = Self {
        line_bytes: 4094,
        field_bytes: 8190,
        fields: 100,
        head_bytes: 64 << 10,
        permits: Permits::NONE,
    };

    /// For heads that this crate writes itself.
    pub(crate) const NONE: Self = Self {
        line_bytes: usize::MAX,
        field_bytes: usize::MAX,
        fields: usize::MAX,
        head_bytes: usize::MAX,
        permits: Permits {
            unconventional_method: true,
            ..Permits::NONE
        },
    };
}
