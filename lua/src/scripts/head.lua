#!lua
-- head.lua: the first part of every script.
-- Only locals, no function: 45 functions at the head of a script cost 7.6 us a call, so each script answers its common
-- case in straight-line code first and reaches calendar.lua only for the rest.
local call, floor, ceil, max, min = redis.call, math.floor, math.ceil, math.max, math.min
local spack, sunpack = struct.pack, struct.unpack
local CAL, POLICY = KEYS[1], KEYS[2]
-- A second of the calendar stands at HEADER_BYTES + 4 * (second - base) of CAL, as u32: the units booked in it.
local HEADER_BYTES = 128
-- Record: state (1 booked, 2 claimed, 3 sent, 4 cancelled, 5 failed, 6 expired, 7 unknown; + 16: a run over several
-- seconds), lane, attempts, throttles, seq, hops, cost, second, position, epoch, end of the lease (ms), nonce, issuer
-- (tag of the copy that raised seq or was told to dead-letter; 0: the scheduler), digest. 44 bytes: embstr.
local RECORD = '<BBBBHHI3I4I3I4I6I4I4c8'
local SEQ_MAX = 65535
local BOOKED, CLAIMED, SENT, CANCELLED, FAILED, EXPIRED, UNKNOWN, RUN = 1, 2, 3, 4, 5, 6, 7, 16
