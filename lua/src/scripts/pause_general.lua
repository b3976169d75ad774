-- pause, general path.
if not C.begin() then return { 0, now, 0 } end
H.paused = pause_for > 0 and min(now + pause_for, 9007199254740992) or 0
call('HSET', POLICY, 'paused', string.format('%.0f', H.paused))
H.dirty = true
C.finish()
return { 1, now, H.paused }
