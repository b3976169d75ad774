-- clock_virtual.lua: takes the place of clock.lua in tests: the instant (microseconds) stands in the key 'sendslot:clock'.
local now = tonumber(call('GET', 'sendslot:clock'))
