#!lua
-- head.lua: the first part of every script.
-- Only locals, no function: 45 functions at the head of a script cost 7.6 us a call, so each script answers its common
-- case in straight-line code first and reaches calendar.lua only for the rest.
local call, floor, ceil, max, min = redis.call, math.floor, math.ceil, math.max, math.min
local spack, sunpack = struct.pack, struct.unpack
local CAL, POLICY = KEYS[1], KEYS[2]
-- A second of the calendar stands at HEADER_BYTES + 4 * (second - base) of CAL, as u32: the units booked in it (its high
-- water), + HOLES when places below that came back.
local HEADER_BYTES, HOLES = 232, 2147483648
-- Byte 63 of the header is the number of this layout. 0 was one of 196 bytes: it is brought up to date when it is met.
local LAYOUT = 1
-- Record: state (1 booked, 2 claimed, 3 sent, 4 cancelled, 5 failed, 6 expired, 7 unknown; + 16: a run over several
-- seconds; + 32: its positions are marked, nobody takes them; + 64: it stands in the place of another send), lane,
-- attempts, throttles, seq, hops, cost, second, position, epoch, time (ms: end of the lease while claimed, else of the
-- end), nonce, issuer (tag of the copy that raised seq or was told to dead-letter; 0: the scheduler), digest. 44 bytes:
-- embstr. Behind them, only for a booking that is not simply [position, position + cost): '<I4I3I3' second, position,
-- units of each of its places.
-- Its origin (when it was booked and which rule bound it) stands in nonce while booked, in issuer when claimed or sent, in
-- nonce when ended otherwise: (seconds from the booking to the slot * 128 + hundredths of the booking) * 16 + rule.
-- The nonce of one that was sent: ms from the call's begin to the report, + HELD * ms that the call was held up before (1022 at
-- most); or HELD * 1023 + seconds, of a report that came after 70 minutes and more.
local RECORD, RECORD_BYTES, HELD = '<BBBBHHI3I4I3I4I6I4I4c8', 44, 4194304
-- A send that is late by no more goes at its turn (us): see at_slot in claim_general.lua.
local PATIENCE = 250000
local SEQ_MAX, HINTS_MAX, HINT_TTL = 65535, 32, 1300000
local BOOKED, CLAIMED, SENT, CANCELLED, FAILED, EXPIRED, UNKNOWN, RUN, OWN, UNDER = 1, 2, 3, 4, 5, 6, 7, 16, 32, 64
