//! Which hosts a policy lets through, and which addresses are never a public host's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::task::{NetworkMode, NetworkPolicy};

/// Whether a name may be reached: `None` no, else whether its addresses may be of a private network (it was listed in
/// full; a wildcard's names may belong to anybody).
pub(super) fn allows_name(policy: &NetworkPolicy, host: &str) -> Option<bool> {
    let host = host.trim_end_matches('.').to_lowercase();
    match policy.mode {
        NetworkMode::NoNetwork => None,
        NetworkMode::Public => Some(false),
        NetworkMode::Allowlist if policy.hosts.contains(&host) => Some(true),
        NetworkMode::Allowlist => {
            let below = |listed: &String| {
                let parent = listed.strip_prefix("*.")?;
                host.strip_suffix(parent)?
                    .strip_suffix('.')
                    .filter(|name| !name.is_empty())
            };
            policy.hosts.iter().find_map(below).map(|_| false)
        }
    }
}

/// Whether an address may be reached. An allowlist may name one of a private network; this machine's own never.
pub(super) fn allows_address(policy: &NetworkPolicy, address: IpAddr) -> bool {
    let address = address.to_canonical();
    match policy.mode {
        NetworkMode::NoNetwork => false,
        NetworkMode::Public => is_public(address),
        NetworkMode::Allowlist => {
            !address.is_loopback()
                && !address.is_unspecified()
                && policy.hosts.iter().any(|listed| covers(listed, address))
        }
    }
}

/// Whether a listed address or `address/bits` holds this one.
fn covers(listed: &str, address: IpAddr) -> bool {
    match listed.parse::<IpNet>() {
        Ok(network) => network.contains(&address),
        Err(_) => listed.parse::<IpAddr>().is_ok_and(|listed| listed == address),
    }
}

/// Whether it is an address of the internet: not this machine's, a private network's, or a cloud's own.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    let shared = first == 100 && (64..128).contains(&second);
    let benchmark = first == 198 && (18..20).contains(&second);
    !(first == 0
        || first >= 240
        || shared
        || benchmark
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    // Addresses that carry one of the older kind lead where that one leads.
    let carried = match (first, second) {
        (0x64, 0xff9b) => Some(Ipv4Addr::from(u128::from(address) as u32)),
        (0x2002, _) => Some(Ipv4Addr::from((u128::from(address) >> 80) as u32)),
        _ => None,
    };
    carried.is_none_or(is_public_v4)
        && (0x2000..0x4000).contains(&first) | carried.is_some()
        && !(first == 0x2001 && second == 0xdb8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(hosts: &[&str]) -> NetworkPolicy {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        NetworkPolicy::of(Some(NetworkMode::Allowlist), &hosts).unwrap()
    }

    #[test]
    fn a_list_covers_names_wildcards_addresses_and_networks() {
        let policy = list(&[
            "pypi.org",
            "*.pythonhosted.org",
            "192.0.2.7",
            "10.1.0.0/16",
            "2001:db8::/32",
        ]);
        assert_eq!(allows_name(&policy, "PyPI.org."), Some(true));
        assert_eq!(allows_name(&policy, "files.pythonhosted.org"), Some(false));
        for name in [
            "pythonhosted.org",
            "xpythonhosted.org",
            "evil.org",
            "pypi.org.evil.org",
            "",
        ] {
            assert_eq!(allows_name(&policy, name), None, "{name}");
        }
        let allowed = |text: &str| allows_address(&policy, text.parse().unwrap());
        assert!(
            allowed("192.0.2.7") && allowed("10.1.255.1") && allowed("2001:db8:1::9") && allowed("::ffff:10.1.2.3")
        );
        assert!(!allowed("192.0.2.8") && !allowed("10.2.0.1") && !allowed("2001:db9::1"));
        assert!(!allows_address(
            &list(&["127.0.0.0/8", "0.0.0.0/0"]),
            "127.0.0.1".parse().unwrap()
        ));
        assert!(!covers("10.0.0.0/x", "10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn public_is_the_internet_and_nothing_near() {
        let public = NetworkPolicy::of(Some(NetworkMode::Public), &[]).unwrap();
        let allowed = |text: &str| allows_address(&public, text.parse().unwrap());
        for near in [
            "127.0.0.1",
            "10.0.0.1",
            "172.17.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:db8::1",
        ] {
            assert!(!allowed(near), "{near}");
        }
        for far in ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "64:ff9b::101:101"] {
            assert!(allowed(far), "{far}");
        }
        assert_eq!(allows_name(&public, "example.com"), Some(false));
        assert_eq!(
            allows_name(
                &NetworkPolicy::of(Some(NetworkMode::NoNetwork), &[]).unwrap(),
                "example.com"
            ),
            None
        );
    }
}
