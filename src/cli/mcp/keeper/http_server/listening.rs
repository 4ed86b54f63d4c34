//! The stream of the messages that a server sends by itself, up to the version 2025-11-25.

use std::sync::{Arc, PoisonError};

use super::{
    event_reader::EventReader,
    exchange::{is_stream, is_temporary},
    session::{HttpSession, SessionAnswer},
    stream_place::StreamPlace,
};

impl HttpSession {
    /// Asks for the server's own messages, in place of an earlier stream.
    pub(super) fn start_listening(self: &Arc<Self>) {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        listener.abort_all();
        listener.spawn(Box::pin(Arc::clone(self).listen()));
    }

    /// Ends the stream of the server's own messages.
    pub(super) fn stop_listening(&self) {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        listener.abort_all();
    }

    async fn listen(self: Arc<Self>) {
        let mut place = StreamPlace::default();
        loop {
            match self.open_stream(place.last_event.as_deref()).await {
                Ok(answer) if answer.response.status().is_success() && is_stream(&answer) => {
                    place.note_success();
                    self.pass_events(answer, &mut place).await;
                }
                // Most servers offer no such stream, and say 405.
                Ok(answer) if !is_temporary(answer.response.status()) => return,
                _ => place.note_failure(),
            }
            if !place.pause().await {
                return self.say("the stream of the server's own messages cannot be opened again");
            }
        }
    }

    async fn pass_events(&self, answer: SessionAnswer, place: &mut StreamPlace) {
        let mut reader = EventReader::new(answer.response.into_body(), self.budget.hold_none());
        loop {
            match reader.next_event().await {
                Ok(Some(event)) => {
                    place.note_event(&event);
                    if let Some(line) = event.line {
                        self.deliver(line).await;
                    }
                }
                Ok(None) => return,
                Err(fault) => return self.say(&fault.text),
            }
        }
    }
}
