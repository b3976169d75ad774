-- header.lua: the general path of every script begins here: the calendar's header, its making and its cutting.
-- Two tables, since a closure costs by what it captures: H is the header, C holds the functions of all parts. A part that not
-- every call needs is made by its own load_… function.
local load_seconds, load_hints          -- of parts that follow
local PREFIX, H, C = string.sub(CAL, 1, -4), {
  base = 0, epoch = 0, num = 0, den = 0, switch = 0, jitter = 0, cool = 0, tat = 0, gap = 0, slack = 0, lead = 0,
    flags = 0, max_attempts = 0, layout = 0, detour = 0, transit = 0, u0 = 0, max_cost = 0, horizon = 0, dedup = 0,
    expiry = 0, num0 = 0, den0 = 0, cool_set = 0, burst = 0, per = 0, cursor_unit = 0, cursor_first = 0,
    cursor_s = 0, features = 0, pre_until = 0, firm = 0, level = 0, floor_level = 0, ceiling_level = 0, spare2 = 0,
    last_cut = 0, last_raise = 0, paused = 0, rcool = 0, spacing = 0, segment = 0, full_num = 0, full_den = 0,
    lag = 0, rest = 0, frozen = 0, pull_until = 0, lifted = 0,
  has_lanes = false, has_quotas = false, has_ramp = false, dirty = false,
}, { quotas = {}, segments = nil }
-- 232 bytes: what claim needs, in 64; what reserve needs; the rate before `switch`; the cooldown's start; the bound of tat;
-- the window (ms); the cursor of reserve.lua (cost, first second it holds for, second); from 128 on what only the general
-- path needs: features, last second with marked positions, first second in which places may be taken over, adaptive
-- level with its floor and ceiling (twentieths of the rate), last cut and raise, end of the pause, end of the last
-- recipient's cooldown, spacing (all us), segment of the ramp, rate at full level, then the lag, until when it is counted (rest), and,
-- of a pause without end, up to when (frozen; 0: none); last second that was booked when the rate was raised: what stands up to there may
-- leave earlier; and when tat was last lifted to the clock, since capacity lay idle before
local HEADER = '<I4I4I4I4I4I4ddddI4BBBBI4I4I4I4I4I4I4I4ddI4I4I4I4I4I4I4BBBBdddddI4I4I4dddI4d'
local SECOND, FAR, LEVELS, PAGE = 1000000, 1209600, 20, 4096
-- a send is moved to make room, or back, so many times at most
local MOVES_MOST = 3
local TAKE_OVER_REACH, RESCUE_REACH, TAKE_OVER_AFTER = 20, 60, 300000
-- The second at which the calendar stands. It lags behind the clock by H.lag: while a budget rests (a pause, a cooldown), and while
-- nobody calls though slots come, the calendar stands still, and all that is booked leaves so much later, in its order. Free places
-- are skipped, so that the lag ends where there is room.
local now_s = floor(now / SECOND)

-- lanes by index and name, from the policy: share in ten-thousandths, preempts, longest wait (s, 0: none)
local quota_table = ''
local lane_id, lane_share, lane_preempts, lane_wait, reserving = { default = 0 }, {}, {}, {}, {}
-- C.segments, of the ramp, ascending: {from, num, den, gap, slack, burst, floor, ceiling}; nil without. C.quotas: see rules.lua

-- A closure looks for each local that it captures among all captured ones: a function around many of them looks once.
local function make_header()
  local KEEP_PAST, REBASE_AGE, HINTS_COPIED = 3600, 10800, 1000000
  function C.unpack_header(h)
    H.base, H.epoch, H.num, H.den, H.switch, H.jitter, H.cool, H.tat, H.gap, H.slack, H.lead, H.flags, H.max_attempts,
      H.layout, H.detour, H.transit, H.u0, H.max_cost, H.horizon, H.dedup, H.expiry, H.num0, H.den0, H.cool_set,
      H.burst, H.per, H.cursor_unit, H.cursor_first, H.cursor_s, H.features, H.pre_until, H.firm, H.level,
      H.floor_level, H.ceiling_level, H.spare2, H.last_cut, H.last_raise, H.paused, H.rcool, H.spacing, H.segment,
      H.full_num, H.full_den, H.lag, H.rest, H.frozen, H.pull_until, H.lifted = sunpack(HEADER, h)
    H.has_lanes, H.has_quotas, H.has_ramp = H.features % 2 == 1, floor(H.features / 2) % 2 == 1, floor(H.features / 8) % 2 == 1
  end

  -- A header of this layout: an old one is made to be one.
  function C.up_to_date(h)
    local layout = string.byte(h, 63)
    if layout == LAYOUT then return h end
    if layout ~= 0 then error('this calendar was written by a newer version of Sendslot (layout ' .. layout .. '): run that one') end
    return string.sub(h, 1, 62) .. string.char(LAYOUT) .. string.sub(h, 64, 196) .. string.rep('\0', HEADER_BYTES - 196)
  end

  -- Which straight-line answers do not hold for this budget now: 1 claims, 2 bookings, 4 the claim at the slot.
  local function detours()
    local all = H.has_ramp or H.rcool > now or H.lag > 0 or H.frozen > 0
    local charged = H.has_quotas or H.spacing > 0 or H.level < H.ceiling_level
    return ((all or H.pre_until + 2 >= now_s or H.pull_until >= now_s or H.paused > now) and 1 or 0)
      + ((all or charged or H.has_lanes) and 2 or 0) + (charged and 4 or 0)
  end

  function C.pack_header()
    H.detour = detours()
    return spack(HEADER,
      H.base, H.epoch, H.num, H.den, H.switch, H.jitter, H.cool, H.tat, H.gap, H.slack, H.lead, H.flags, H.max_attempts,
        H.layout, H.detour, H.transit, H.u0, H.max_cost, H.horizon, H.dedup, H.expiry, H.num0, H.den0, H.cool_set,
        H.burst, H.per, H.cursor_unit, H.cursor_first, H.cursor_s, H.features, H.pre_until, H.firm, H.level,
        H.floor_level, H.ceiling_level, H.spare2, H.last_cut, H.last_raise, H.paused, H.rcool, H.spacing, H.segment,
        H.full_num, H.full_den, H.lag, H.rest, H.frozen, H.pull_until, H.lifted)
  end

  -- name, index, flags (1: preempts), share, longest wait of each lane
  local function load_lanes(packed)
    local o, size = 1, #packed
    while o <= size do
      local i, lane_flags, share, wait, length = sunpack('<BBI4I4B', packed, o)
      local name = string.sub(packed, o + 11, o + 10 + length)
      if lane_flags < 128 then lane_id[name] = i end        -- 128: no longer a lane, but bookings of it stand
      lane_share[i], lane_preempts[i], lane_wait[i] = share, lane_flags % 2 == 1, wait
      C.preempting = C.preempting or lane_preempts[i]
      if share > 0 then reserving[#reserving + 1] = i end
      o = o + 11 + length
    end
  end

  function C.load_segments(packed)
    C.segments = nil
    for o = 1, #packed, 38 do
      C.segments = C.segments or {}
      C.segments[#C.segments + 1] = { sunpack('<I4I4I4dddBB', packed, o) }
    end
  end

  function C.load_tables()
    if not H.has_lanes and H.features < 32 and not H.has_ramp and not H.has_quotas then return end
    local tables = call('HMGET', POLICY, 'lane_table', 'segments', 'quota_table')
    load_lanes(tables[1] or '')
    if H.has_ramp then C.load_segments(tables[2] or '') end
    quota_table = tables[3] or ''
  end

  -- Whether the guard alone lets a send of this cost pass only behind an idle stretch: see heavy.lua.
  function C.heavy(cost) return cost > 1 and cost * H.gap > H.slack end

  function C.drop_hints()
    call('UNLINK', PREFIX .. 'hints', unpack(call('SMEMBERS', PREFIX .. 'hints')))
  end

  -- A calendar that was never there, or was lost with data that nobody knows: a new epoch voids every booking of the old
  -- one. After a loss nothing may start before now + per, since what was just sent is unknown.
  function C.new_calendar(compiled, lost)
    C.unpack_header(C.up_to_date(compiled))
    now_s = floor(now / SECOND)
    H.base, H.epoch = floor(now_s / 3600) * 3600 - KEEP_PAST, floor(now / 1000) % 4294967295 + 1
    H.cool, H.tat, H.cool_set, H.expiry, H.switch, H.num0, H.den0 = 0, -1e13, 0, now_s + 7200, 0, H.num, H.den
    if lost then H.cool, H.cool_set = now + H.per * 1000, now end
    if H.level < LEVELS then C.change_rate(H.full_num, H.full_den, H.num, H.den) end
    H.paused, H.frozen = tonumber(call('HGET', POLICY, 'paused') or 0), 0
    if H.paused - now > FAR * SECOND then H.frozen = now elseif H.paused > now then H.lag, H.rest = H.paused - now, H.paused end
    call('UNLINK', CAL, PREFIX .. 'holes', PREFIX .. 'pre', PREFIX .. 'hb', PREFIX .. 'hv')
    C.drop_hints()
    call('SETRANGE', CAL, 0, C.pack_header())
    if C.forget_seconds then C.forget_seconds() end
    C.live_on()
  end

  -- Cuts off what lies more than an hour back, in whole hours, so that calendar and hints keep their alignment: when it is more than what
  -- lies ahead, since what is kept is copied (2 ms a megabyte). Of the hints as many are kept as copy quickly. A clock that was far
  -- ahead and came back finds too much cut off: then seconds without bookings are put before the first one.
  local function rebase(to_s)
    local new_base = floor(to_s / 3600) * 3600 - KEEP_PAST
    local gone = new_base - H.base
    local function moved(key, skip, bytes_each)
      local n = gone * bytes_each
      if n < 0 then return string.rep('\0', -n) .. call('GETRANGE', key, skip, -1) end
      return call('GETRANGE', key, skip + n, -1)
    end
    local kept = moved(CAL, HEADER_BYTES, 4)
    H.base, H.tat, H.lifted, H.cursor_unit = new_base, H.tat - gone * SECOND, H.lifted - gone * SECOND, 0
    -- header and body at once: a caller that only looks may return without finish()
    call('SET', CAL, C.pack_header() .. kept, 'KEEPTTL')
    if C.forget_seconds then C.forget_seconds() end
    local copied = #kept
    for _, hint in ipairs(call('SMEMBERS', PREFIX .. 'hints')) do
      local bits = copied < HINTS_COPIED and moved(hint, 0, 1 / 8) or ''
      copied = copied + #bits
      if #bits > 0 then call('SET', hint, bits, 'EX', HINT_TTL) else call('DEL', hint); call('SREM', PREFIX .. 'hints', hint) end
    end
  end

  -- nil: the budget has no policy; else what happened to the calendar: kept, cut, new.
  function C.load_header()
    local h, done = call('GETRANGE', CAL, 0, HEADER_BYTES - 1), 'kept'
    if #h >= 196 and string.byte(h, 63) ~= LAYOUT then
      h = C.up_to_date(h)
      call('SET', CAL, h .. call('GETRANGE', CAL, 196, -1), 'KEEPTTL')
    end
    if #h < HEADER_BYTES then
      local policy = call('HMGET', POLICY, 'compiled', 'idle_after')
      if not policy[1] then return nil end
      C.new_calendar(policy[1], not policy[2] or floor(now / SECOND) < tonumber(policy[2]))
      done = 'new'
    else
      C.unpack_header(h)
    end
    C.load_tables()
    C.follow_lag()
    if H.base - now_s > FAR then C.new_calendar(C.pack_header(), false); done = 'new'
    elseif now_s - H.base > REBASE_AGE + max(0, H.expiry - 7200 - now_s) or H.base > now_s then rebase(now_s); done = 'cut' end
    if H.cool_set > now then                          -- the clock was set back: the cooldown lasts as long as it was meant to
      H.cool, H.cool_set, H.dirty = now + (H.cool - H.cool_set), now, true
    end
    local ahead = now - H.base * SECOND + H.burst + PATIENCE       -- further ahead tat never runs, unless the clock was set back
    if H.tat > ahead then H.tat, H.firm, H.dirty = ahead, now_s + 1, true end
    if detours() ~= H.detour then H.dirty = true end
    return done
  end
end
make_header()
