-- provider_id: remembers which send the provider knows by which ID of its own.
--
-- KEYS[1] cal: string, the budget's calendar; TTL past its last booked second
-- KEYS[2] policy: hash, the budget's policy; no TTL
-- KEYS[3] link: string, the send ID; TTL dedup_ttl
-- ARGV[1] id: the send ID
--
-- Returns: {now}
--   now: us since 1970
local h = call('GETRANGE', CAL, 80, 83)
if #h < 4 then h = string.sub(call('HGET', POLICY, 'compiled') or '', 81, 84) end
call('SET', KEYS[3], ARGV[1], 'EX', string.format('%.0f', max(1, #h == 4 and sunpack('<I4', h) or 86400)))
return { now }
