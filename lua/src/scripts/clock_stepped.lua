-- clock_stepped.lua: takes the place of clock.lua in tests: Redis TIME, set forward or back by the key 'sendslot:clock' (us).
local time = call('TIME')
local now = time[1] * 1000000 + time[2] + (call('GET', 'sendslot:clock') or 0)
