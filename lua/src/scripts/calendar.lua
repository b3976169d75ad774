-- calendar.lua: the beginning and the end of every script's general path.
local function make_calendar()
  C.work = 0               -- what this call has cost, in units of about a microsecond
  function C.outlive(s)
    if s > H.expiry - 3600 then
      H.expiry, H.dirty = s + 7200, true
      C.live_on()
    end
  end

  -- Until when the calendar is needed, from now on (s).
  function C.life() return max(1, H.expiry - now_s + ceil(max(0, H.rest - now) / SECOND)) end

  -- Everything of it lives as long as it is needed.
  function C.live_on()
    local life = C.life()
    call('HSET', POLICY, 'idle_after', floor(now / SECOND) + life)
    call('EXPIRE', CAL, life)
    if H.lag == 0 then return end
    for _, key in ipairs({ 'holes', 'pre', 'hb' }) do call('EXPIRE', PREFIX .. key, life, 'GT') end
    for i, share in pairs(lane_share) do
      for p = floor(now_s / PAGE), floor(now_s / PAGE) + 1 do
        if share > 0 then call('EXPIRE', PREFIX .. 'lu:' .. i .. ':' .. H.epoch .. ':' .. p, life, 'GT') end
      end
    end
  end

  function C.origin_of(s, rule)
    return (min(2097151, max(0, s - now_s)) * 128 + floor(now % SECOND / 10000)) * 16 + rule
  end

  function C.record_ttl(s) return max(1, s - now_s + ceil(max(0, H.rest - now) / SECOND)) + H.dedup end

  function C.recipient_in(tail)
    if #tail % 10 == 8 then return string.sub(tail, -8) end
  end

  function C.places_in(tail, s, p, cost)
    if #tail < 10 then return { { s, p, cost } } end
    local places = {}
    for o = 1, #tail - 9, 10 do places[#places + 1] = { sunpack('<I4I3I3', tail, o) } end
    return places
  end

  function C.finish()
    if C.write_seconds then C.write_seconds() end
    if C.write_blocks then C.write_blocks() end
    if C.write_quotas then C.write_quotas(); C.write_recipients() end
    if H.dirty then call('SETRANGE', CAL, 0, C.pack_header()) end
    if C.write_hints then C.write_hints() end
  end

  -- One cut for all calls that were under way, at most once a second.
  function C.cut(elapsed)
    if H.features % 32 < 16 or now - elapsed < H.last_cut or now - H.last_cut < SECOND then return end
    local n0, d0 = C.rate_at(now_s)
    H.last_cut, H.level = now, max(H.floor_level, floor(H.level * 3 / 4))
    C.change_rate(H.full_num, H.full_den, n0, d0)
  end

  -- One step up after each 5 s without a throttle in which the rate was the bottleneck.
  local function adapt()
    if H.last_cut > now then H.last_cut, H.dirty = now, true end
    if H.last_raise > now then H.last_raise, H.dirty = now, true end
    if now_s < H.switch or now - max(H.last_cut, H.last_raise) < 5 * SECOND then return end
    H.last_raise, H.dirty = now, true
    load_seconds()
    local room = C.grid(now_s - 1)
    if room > 0 and C.get(C.high_water, now_s - 1) % HOLES < 0.9 * room then return end
    if room == 0 and C.last_booked() <= now_s then return end
    local n0, d0 = C.rate_at(now_s)
    H.level = H.level + 1
    C.change_rate(H.full_num, H.full_den, n0, d0)
  end

  -- false: the budget has no policy.
  function C.begin()
    local kept = C.load_header()
    if not kept then return false end
    if H.has_quotas then
      load_rules()
      C.load_quotas()
      if kept == 'new' then C.void_quotas() end
    end
    if C.segments then C.follow_ramp() end
    -- a pause without an end outlives what was meant for a while
    if H.frozen > 0 and call('TTL', CAL) < C.life() - 600 then C.live_on() end
    if H.level < H.ceiling_level then adapt() end
    return true
  end
end
make_calendar()
