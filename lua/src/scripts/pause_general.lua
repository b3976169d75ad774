-- pause, general path.
if not C.begin() then return { 0, now, 0 } end
if H.paused <= now then call('HDEL', POLICY, 'paused_at') end
H.paused, H.frozen = pause_for > 0 and min(now + pause_for, 9007199254740992) or 0, 0
C.go_on()
if pause_for > FAR * SECOND then
  H.frozen, H.rest = now, now
else
  C.stand_still(max(H.paused, H.cool > now and H.lag > 0 and H.cool or 0))
end
call('HSET', POLICY, 'paused', string.format('%.0f', H.paused))
if pause_for > 0 then call('HSETNX', POLICY, 'paused_at', string.format('%.0f', now)) else call('HDEL', POLICY, 'paused_at') end
H.dirty = true
C.live_on()
C.finish()
return { 1, now, H.paused }
