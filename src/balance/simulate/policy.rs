//! Ways to serve a load, and their names on a command line.

use std::fmt;
use std::str::FromStr;

/// A way to serve a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Policy {
    /// Sessions stay with their replica; nothing is held.
    Sticky,
    /// Sticky, but sessions go where their whole context is computed sooner than they wait; nothing is held.
    Priced,
    /// Each turn goes to the next replica; nothing is held.
    RoundRobin,
    /// Sticky, and so many sessions of a replica at a time.
    Cap(usize),
    /// The same with the number that is best for this load, found by trying.
    BestCap,
    /// Sticky, and places as by [`crate::balance::scheduler::Lease`].
    Lease {
        /// Seconds that an idle session keeps its place although others wait.
        lease: f64,
    },
    /// Sticky, and turns sent as by [`crate::balance::scheduler::Watermark`].
    Watermark,
}

/// Not the name of a policy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is no policy: expected `sticky`, `priced`, `round-robin`, `cap` (the best one), `cap:<sessions>`, `lease`, `lease:<seconds>` or `watermark`"
)]
pub struct UnknownPolicy(String);

/// Seconds of a lease that is not given.
const LEASE: f64 = 20.0;

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownPolicy(text.to_owned());
        match text.split_once(':') {
            None => match text {
                "sticky" => Ok(Self::Sticky),
                "priced" => Ok(Self::Priced),
                "round-robin" => Ok(Self::RoundRobin),
                "cap" => Ok(Self::BestCap),
                "lease" => Ok(Self::Lease { lease: LEASE }),
                "watermark" => Ok(Self::Watermark),
                _ => Err(unknown()),
            },
            Some(("cap", number)) => match number.parse() {
                Ok(number) if number > 0 => Ok(Self::Cap(number)),
                _ => Err(unknown()),
            },
            Some(("lease", seconds)) => match seconds.trim_end_matches('s').parse() {
                Ok(lease) if f64::is_finite(lease) && lease >= 0.0 => Ok(Self::Lease { lease }),
                _ => Err(unknown()),
            },
            Some(_) => Err(unknown()),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sticky => f.write_str("sticky"),
            Self::Priced => f.write_str("priced"),
            Self::RoundRobin => f.write_str("round-robin"),
            Self::Cap(most) => write!(f, "cap:{most}"),
            Self::BestCap => f.write_str("cap"),
            Self::Lease { lease } if (lease - LEASE).abs() < f64::EPSILON => f.write_str("lease"),
            Self::Lease { lease } => write!(f, "lease:{lease}"),
            Self::Watermark => f.write_str("watermark"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_there_and_back() {
        for name in [
            "sticky",
            "priced",
            "round-robin",
            "cap:48",
            "cap",
            "lease",
            "lease:5.5",
            "watermark",
        ] {
            assert_eq!(name.parse::<Policy>().unwrap().to_string(), name);
        }
        for wrong in ["", "lru", "cap:0", "cap:x", "lease:-1", "lease:inf", "sticky:3"] {
            let said = wrong.parse::<Policy>().unwrap_err().to_string();
            assert!(said.starts_with(&format!("`{wrong}` is no policy")), "{said}");
        }
    }
}
