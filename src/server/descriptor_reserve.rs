//! One file descriptor in reserve, for an accept that fails for lack of descriptors.

use std::{
    fs::File,
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::upstream::descriptors;

/// The reserved descriptor, shared by all listeners of the process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct DescriptorReserve(Arc<Mutex<ReserveState>>);

#[derive(Debug, Default)]
struct ReserveState {
    spare: Option<SpareDescriptor>,
    /// `true` while a connection has the descriptor.
    is_lent: bool,
}

/// A descriptor without a use: of a file that nobody reads, or of the closed connection that had the reserve last.
#[derive(Debug)]
enum SpareDescriptor {
    File(#[expect(dead_code, reason = "only its descriptor is of use")] File),
    Socket(#[expect(dead_code, reason = "only its descriptor is of use")] TcpStream),
}

impl DescriptorReserve {
    /// Runs an accept of a listener that may not use the reserve. Fills the reserve first if it is missing.
    ///
    /// Listeners without a descriptor all try again and again. One of them would take what [`Self::lend_to`] frees.
    pub(super) fn guard_accept<T>(&self, accept: impl FnOnce() -> T) -> T {
        let mut state = self.lock_state();
        state.fill_spare();
        accept()
    }

    /// Fills the reserve if it is missing and a descriptor is left.
    pub fn fill(&self) {
        self.lock_state().fill_spare();
    }

    /// Frees the reserved descriptor for an accept that does not wait. `None` if it is in use, or nothing was accepted.
    pub fn lend_to<T>(&self, accept: impl FnOnce() -> Option<T>) -> Option<(T, ReserveLoan)> {
        let mut state = self.lock_state();
        drop(state.spare.take()?);
        let accepted = accept();
        state.is_lent = accepted.is_some();
        // A client may have left meanwhile. The next one needs the reserve.
        state.fill_spare();
        Some((accepted?, ReserveLoan(self.clone())))
    }

    fn lock_state(&self) -> MutexGuard<'_, ReserveState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReserveState {
    fn fill_spare(&mut self) {
        if self.spare.is_none() && !self.is_lent {
            self.spare = descriptors::open_spare().ok().map(SpareDescriptor::File);
        }
    }
}

/// The loan of the reserved descriptor to one connection. Dropping it ends the loan.
#[derive(Debug)]
pub struct ReserveLoan(DescriptorReserve);

impl ReserveLoan {
    /// Ends a connection, and makes its descriptor the reserve again.
    ///
    /// A closed descriptor could be taken by another part of the process before it is opened again.
    pub fn return_socket(self, socket: TcpStream) {
        drop(socket.shutdown(Shutdown::Both));
        self.0.lock_state().spare = Some(SpareDescriptor::Socket(socket));
    }
}

impl Drop for ReserveLoan {
    fn drop(&mut self) {
        let mut state = self.0.lock_state();
        state.is_lent = false;
        state.fill_spare();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_reserve_is_lent_to_one_connection_at_a_time() {
        let reserve = DescriptorReserve::default();
        assert!(reserve.lend_to(|| Some(1)).is_none(), "it is not filled yet");
        reserve.fill();
        assert!(reserve.lend_to(|| None::<u8>).is_none());
        let (accepted, loan) = reserve.lend_to(|| Some(2)).unwrap();
        assert_eq!(accepted, 2);
        // Filling it now would be a second reserve.
        reserve.guard_accept(|| ());
        assert!(reserve.lend_to(|| Some(3)).is_none());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        loan.return_socket(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let (accepted, loan) = reserve.lend_to(|| Some(4)).unwrap();
        assert_eq!(accepted, 4);
        drop(loan);
        assert!(reserve.lend_to(|| Some(5)).is_some(), "a loan that was dropped is over");
    }
}
