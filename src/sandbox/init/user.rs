//! Who a command runs as, by the name or numbers that a task or an image gives.
//!
//! Read from the container's own `/etc/passwd` and `/etc/group`, as a container engine does (the forms `user`,
//! `user:group`, numbers or names in either place).

use std::fs;

use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};

/// A user inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// Its home folder; `/` where it has none.
    pub(super) home: String,
}

impl Account {
    /// Looks it up.
    pub(super) fn find(name: &str) -> Result<Self, String> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self::parse(name, &read("/etc/passwd"), &read("/etc/group"))
    }

    fn parse(wanted: &str, passwd: &str, group: &str) -> Result<Self, String> {
        let (user, wanted_group) = match wanted.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (wanted, None),
        };
        let entry = lines(passwd).find(|fields| fields.first() == Some(&user) || fields.get(2) == Some(&user));
        let number = |text: Option<&&str>| text.and_then(|text| text.parse::<u32>().ok());
        let uid = match &entry {
            Some(fields) => number(fields.get(2)),
            // An image of a few files has no list of users.
            None if user == "root" => Some(0),
            None => user.parse().ok(),
        };
        let uid = uid.ok_or_else(|| format!("there is no user `{user}` in the image's /etc/passwd"))?;
        let name = entry.as_ref().and_then(|fields| fields.first().copied());
        let own = entry.as_ref().and_then(|fields| number(fields.get(3))).unwrap_or(0);
        let gid = match wanted_group {
            None => own,
            Some(wanted) => lines(group)
                .find(|fields| fields.first() == Some(&wanted))
                .and_then(|fields| number(fields.get(2)))
                .or_else(|| wanted.parse().ok())
                .ok_or_else(|| format!("there is no group `{wanted}` in the image's /etc/group"))?,
        };
        let is_member = |fields: &Vec<&str>| {
            let members = fields.get(3).copied().unwrap_or_default();
            name.is_some_and(|name| members.split(',').any(|member| member == name))
        };
        let mut groups: Vec<u32> = lines(group)
            .filter(is_member)
            .filter_map(|fields| number(fields.get(2)))
            .collect();
        groups.insert(0, gid);
        groups.dedup();
        let home = entry
            .and_then(|fields| fields.get(5).copied())
            .filter(|home| !home.is_empty());
        Ok(Self {
            uid,
            gid,
            groups,
            home: home.unwrap_or("/").to_owned(),
        })
    }

    /// Becomes it, for good.
    pub(super) fn assume(&self) -> Result<(), String> {
        let groups: Vec<Gid> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        setgroups(&groups)
            .and_then(|()| setgid(Gid::from_raw(self.gid)))
            .and_then(|()| setuid(Uid::from_raw(self.uid)))
            .map_err(|error| format!("become user {}: {error}", self.uid))
    }
}

fn lines(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split(':').collect())
}

#[cfg(test)]
mod tests {
    use super::Account;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1001::/home/agent:/bin/sh\nbroken\n";
    const GROUP: &str = "root:x:0:\nagent:x:1001:\ndocker:x:99:other,agent\n";

    fn found(name: &str) -> Result<Account, String> {
        Account::parse(name, PASSWD, GROUP)
    }

    fn account(uid: u32, groups: &[u32], home: &str) -> Account {
        Account {
            uid,
            gid: groups[0],
            groups: groups.to_vec(),
            home: home.to_owned(),
        }
    }

    #[test]
    fn names_and_numbers_are_looked_up_as_an_engine_does() {
        assert_eq!(found("root"), Ok(account(0, &[0], "/root")));
        assert_eq!(found("agent"), Ok(account(1000, &[1001, 99], "/home/agent")));
        assert_eq!(found("1000"), found("agent"));
        assert_eq!(found("agent:docker"), Ok(account(1000, &[99], "/home/agent")));
        assert_eq!(found("1000:5"), Ok(account(1000, &[5, 99], "/home/agent")));
        assert_eq!(Account::parse("root", "", ""), Ok(account(0, &[0], "/")));
        assert_eq!(found("4242"), Ok(account(4242, &[0], "/")));
        assert_eq!(
            found("nobody"),
            Err("there is no user `nobody` in the image's /etc/passwd".to_owned())
        );
        assert_eq!(
            found("agent:wheel"),
            Err("there is no group `wheel` in the image's /etc/group".to_owned())
        );
    }
}
