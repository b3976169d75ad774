use std::time::{Duration, SystemTime};

use sendslot_shared::redis_policy::RedisPolicy;
use sendslot_shared::reserve::{Booking, BoundBy, Paused};
use sendslot_shared::status::DeliveryStatus;
use sendslot_shared::time::{DelaySeconds, Timer};

/// A message that was accepted: it is on SQS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scheduled {
    /// It has its slot.
    Booked(Booked),
    /// Redis could not be asked: it has no slot yet. When Redis can be asked again, a worker books it the first free slot,
    /// unless it was scheduled before; what [`ScheduleError::Refused`](crate::ScheduleError::Refused) would have said
    /// then ends it there (a past deadline, a conflict and a cost too large in the dead-letter queue).
    Unbooked {
        /// What becomes of it until then.
        policy: RedisPolicy,
    },
}

impl Scheduled {
    /// The booking, if it has one.
    #[must_use]
    pub fn booked(self) -> Option<Booked> {
        if let Self::Booked(booked) = self { Some(booked) } else { None }
    }

    /// How far it has come: booked, or accepted without a slot.
    #[must_use]
    pub fn status(&self) -> DeliveryStatus {
        match self {
            Self::Booked(_) => DeliveryStatus::Booked,
            Self::Unbooked { .. } => DeliveryStatus::Accepted,
        }
    }

    /// The slot's instant on Redis' clock, for people; `None` when it has no slot yet, and while its budget is paused without an
    /// end.
    #[must_use]
    pub fn at(&self) -> Option<SystemTime> {
        self.with_an_instant().map(Booked::at)
    }

    /// How far the slot is ahead now, for programs; `None` as for [`Scheduled::at`].
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        self.with_an_instant().map(Booked::wait)
    }

    fn with_an_instant(&self) -> Option<&Booked> {
        match self {
            Self::Booked(booked) if booked.paused() != Some(Paused::Open) => Some(booked),
            _ => None,
        }
    }

    /// The delay of its copy when it is sent now. What is held shows up after 1 to 3 s: soon after a short outage, and spread.
    pub(crate) fn delay(&self, timer: Timer) -> DelaySeconds {
        match self {
            Self::Booked(booked) => booked.booking.delay(timer),
            Self::Unbooked { policy: RedisPolicy::Hold } => {
                timer.delay(Duration::from_secs(fastrand::u64(1..=3)), Duration::ZERO)
            }
            Self::Unbooked { policy: RedisPolicy::Local { .. } } => DelaySeconds::ZERO,
        }
    }
}

/// A send that has its slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booked {
    pub(crate) booking: Booking,
}

impl Booked {
    /// The slot's instant on Redis' clock, for people. In a budget that is paused without an end: as if it went on at the booking.
    #[must_use]
    pub fn at(&self) -> SystemTime {
        self.booking.at.to_system_time()
    }

    /// How far the slot is ahead now, for programs: by Redis' clock at the booking and this process's monotonic clock
    /// since. Zero when it has passed.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.booking.wait()
    }

    /// Whether the budget was paused at the booking.
    #[must_use]
    pub fn paused(&self) -> Option<Paused> {
        self.booking.paused
    }

    /// 1 for the first booking of this send, and one more for each time it was booked again.
    #[must_use]
    pub fn seq(&self) -> u32 {
        self.booking.seq
    }

    /// The slot as it is stored: the second (since 1970) and the units booked before it in that second.
    #[must_use]
    pub fn slot(&self) -> (u32, u32) {
        self.booking.slot
    }

    /// Which rule kept the slot from being earlier; `None` for a booking that stood before.
    #[must_use]
    pub fn bound_by(&self) -> Option<BoundBy> {
        self.booking.bound_by
    }

    /// The send was booked before: this is the booking that stands.
    #[must_use]
    pub fn was_booked(&self) -> bool {
        self.booking.existing
    }
}
