-- receipt: what the provider says became of a send that it took.
--
-- Receipts come in any order and more than once: the last by the provider's instant stands, and of one instant `delivered`.
--
-- KEYS[1] cal: string, the budget's calendar; TTL past its last booked second
-- KEYS[2] policy: hash, the budget's policy; no TTL
-- KEYS[3] record: string, the send's record; TTL slot + dedup_ttl
-- ARGV[1] receipt: '<BI6' 1 delivered, 0 undelivered; when, by the provider (ms since 1970); and behind them the provider's word
-- Derived key: d:<id>: string, the receipt that stands: '<BI6' as above, '<I6' when it was recorded (ms), the provider's word; TTL
--   dedup_ttl, and as long as the record at least
--
-- Returns: {code, now}
--   code 0 recorded, 1 another one stands, or the same, 2 nothing is known of the send; now: us since 1970
local prefix, left = string.sub(CAL, 1, -4), call('PTTL', KEYS[3])
if left == -2 then return { 2, now } end
local key = prefix .. 'd:' .. string.sub(KEYS[3], #prefix + 3)
local delivered, at = sunpack('<BI6', ARGV[1])
local known = call('GET', key)
if known then
  local known_delivered, known_at = sunpack('<BI6', known)
  if known_at > at or known_at == at and known_delivered >= delivered then return { 1, now } end
end
local h = call('GETRANGE', CAL, 80, 83)
if #h < 4 then h = string.sub(call('HGET', POLICY, 'compiled') or '', 81, 84) end
local dedup = #h == 4 and sunpack('<I4', h) or 86400
call('SET', key, string.sub(ARGV[1], 1, 7) .. spack('<I6', floor(now / 1000)) .. string.sub(ARGV[1], 8), 'PX',
  string.format('%.0f', max(left, dedup * 1000)))
return { 0, now }
