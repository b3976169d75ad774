-- clock.lua: the one clock of Sendslot, whole microseconds of Redis TIME, read once per script.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
