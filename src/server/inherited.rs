//! Listeners that the service manager opened before the process started (socket activation).

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use super::{BindError, bind_listener};

/// Name of the data listener in a socket unit: `FileDescriptorName=data`.
const DATA: &str = "data";
/// Name of the admin listener in a socket unit.
const ADMIN: &str = "admin";

/// Listeners that this process has inherited. A missing one is bound by the process itself.
#[derive(Debug, Default)]
pub struct InheritedListeners {
    /// The data listener.
    pub data: Option<TcpListener>,
    /// The admin listener.
    pub admin: Option<TcpListener>,
}

/// The error of inheriting a listener.
#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    /// More sockets than listeners, or a name of neither listener, or one name twice.
    #[error("the service manager passed a socket that no listener uses: name one `data` and at most one `admin`")]
    Names,
    /// A socket of another kind.
    #[error("the socket {name} of the service manager is no TCP listener: {source}")]
    Kind {
        /// Name of the listener.
        name: &'static str,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A socket at another address than the configuration says, whose checks hold only for its own.
    #[error("the service manager listens on {found}, but {key} is {wanted}: write the same address in both places")]
    Address {
        /// Address of the socket.
        found: SocketAddr,
        /// Key of the configuration.
        key: &'static str,
        /// Its value.
        wanted: SocketAddr,
    },
}

/// Returns the listener for an address: the inherited one if there is one, else a new one.
pub fn open_listener(
    inherited: Option<TcpListener>,
    address: SocketAddr,
) -> Result<tokio::net::TcpListener, BindError> {
    let Some(listener) = inherited else {
        return bind_listener(address);
    };
    // The service manager may have left it blocking, which would stop the whole runtime.
    let prepared = listener.set_nonblocking(true);
    prepared
        .and_then(|()| tokio::net::TcpListener::from_std(listener))
        .map_err(|source| BindError { address, source })
}

/// Assigns sockets to the listeners: by their names, or in the order data, admin if none has a name of a listener.
///
/// Returns the places of the data and of the admin listener among the sockets.
fn assign_sockets(count: usize, names: &[&str]) -> Result<[Option<usize>; 2], InheritError> {
    let is_named = names.iter().any(|name| [DATA, ADMIN].contains(name));
    if !is_named {
        return match count {
            0 => Ok([None, None]),
            1 => Ok([Some(0), None]),
            2 => Ok([Some(0), Some(1)]),
            _ => Err(InheritError::Names),
        };
    }
    let find = |wanted: &str| names.iter().position(|name| *name == wanted);
    let found = [find(DATA), find(ADMIN)];
    // Systemd passes one name for each socket. Clients of a socket that nobody accepts would wait for ever.
    if names.len() == count && found.iter().flatten().count() == count {
        Ok(found)
    } else {
        Err(InheritError::Names)
    }
}

impl InheritedListeners {
    /// Takes the listeners that the service manager passed to this process. Call it once.
    ///
    /// `names` is the variable with their names, separated by colons.
    #[cfg(unix)]
    pub fn take(names: Option<&str>) -> Result<Self, InheritError> {
        let mut sockets = listenfd::ListenFd::from_env();
        let names: Vec<&str> = names.map(|names| names.split(':').collect()).unwrap_or_default();
        let [data, admin] = assign_sockets(sockets.len(), &names)?;
        let mut take = |name: &'static str, place: Option<usize>| {
            let taken = place.map(|place| sockets.take_tcp_listener(place));
            let taken = taken
                .transpose()
                .map_err(|source| InheritError::Kind { name, source })?;
            Ok::<_, InheritError>(taken.flatten())
        };
        Ok(Self {
            data: take(DATA, data)?,
            admin: take(ADMIN, admin)?,
        })
    }

    /// Returns no listener: Windows has no socket activation.
    #[cfg(not(unix))]
    pub fn take(_names: Option<&str>) -> Result<Self, InheritError> {
        let _ = assign_sockets;
        Ok(Self::default())
    }

    /// Checks that the sockets have the configured addresses.
    pub fn check_addresses(&self, data: SocketAddr, admin: SocketAddr) -> Result<(), InheritError> {
        let pairs = [
            (&self.data, "server.listen", data),
            (&self.admin, "server.admin_listen", admin),
        ];
        for (socket, key, wanted) in pairs {
            let Some(found) = socket.as_ref().and_then(|socket| socket.local_addr().ok()) else {
                continue;
            };
            if found != wanted {
                return Err(InheritError::Address { found, key, wanted });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_assigned_by_name_or_in_order() {
        for (count, names, wanted) in [
            (0, &[][..], Some([None, None])),
            (1, &[], Some([Some(0), None])),
            (2, &[], Some([Some(0), Some(1)])),
            (3, &[], None),
            (2, &["antiphon.socket", "antiphon.socket"], Some([Some(0), Some(1)])),
            (1, &["unknown"], Some([Some(0), None])),
            (2, &["admin", "data"], Some([Some(1), Some(0)])),
            (1, &["admin"], Some([None, Some(0)])),
            (2, &["data", "data"], None),
            (2, &["data", "other"], None),
            (2, &["data"], None),
            (1, &["data", "admin"], None),
        ] {
            assert_eq!(assign_sockets(count, names).ok(), wanted, "{count} {names:?}");
        }
    }

    #[test]
    fn a_socket_at_another_address_is_refused() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let (found, other) = (socket.local_addr().unwrap(), "127.0.0.1:1".parse().unwrap());
        let inherited = InheritedListeners {
            data: None,
            admin: Some(socket),
        };
        inherited.check_addresses(other, found).unwrap();
        let error = inherited.check_addresses(found, other).unwrap_err().to_string();
        assert!(error.contains("server.admin_listen is 127.0.0.1:1"), "{error}");
    }
}
