//! Return of freed memory to the system when a large load has ended.

use std::time::Duration;

use super::BodyMemory;

/// Time after which the allocator considers a freed block as unused, with a margin.
const UNUSED_AFTER: Duration = Duration::from_millis(1500);
/// Number of passes. Each returns a part of the allocator's areas.
const PASSES: usize = 6;

/// Returns freed memory to the system each time that a large use of `memory` has ended. Runs for as long as the process.
///
/// The allocator keeps freed blocks for the next request, and returns them only in the course of other work. An idle
/// process has none, so it would keep the memory of its busiest moment.
pub async fn return_freed_memory(memory: BodyMemory) {
    loop {
        memory.wait_until_freed().await;
        for _ in 0..PASSES {
            tokio::time::sleep(UNUSED_AFTER).await;
            // The end of a thread is such other work: mimalloc then returns what has been unused for a second.
            let passes = std::thread::Builder::new().name("memory-return".to_owned());
            // Without a thread the memory is returned with the next requests.
            drop(passes.spawn(|| drop(std::hint::black_box(Vec::<u8>::with_capacity(64)))));
        }
    }
}
