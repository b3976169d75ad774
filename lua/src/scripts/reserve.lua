-- reserve: books a batch of sends of one budget, each the earliest free slot, all-or-nothing per send.
--
-- Idempotent for a send ID: asked again, it answers with the booking that stands. A refusal leaves no trace.
--
-- KEYS[1] cal: string, the budget's calendar; TTL past its last booked second
-- KEYS[2] policy: hash, the budget's policy; no TTL
-- KEYS[3..n+2] record: string, one per send; TTL slot + dedup_ttl
-- ARGV[1..n] send: '<c8BI4dd' digest, extended, cost (units, 1..2^24-1), not_before and deadline (us since 1970, 0: none);
--   when extended is 1 then 'c8B' recipient (zero: none), flags (1: redrive, an end but sent or cancelled is left), and the
--   lane's name (empty: default)
-- Derived keys (same hash tag): lu:<lane>:<epoch>:<page>, holes, hb, hv, pre, q:<length>:<offset>, sp:<recipient>, h:<id>, hints, dl:<hour>,
--   full:<num>/<den>:<lane view>:<cost>, full:<64 or 4096>:<length>:<offset>
--
-- Returns: {now} when the budget has no policy; else {now, lead, answer 1, … answer m}; m < n, perhaps 0: that was much work, ask again for
--   the other sends
--   now: us since 1970; lead: us, how long before its slot a message shall show up
--   answer: '<BI4I4I4i8' code, seq, second, position, wait (us from now to the slot's instant, may be negative)
--     code 0 booked (+ 32 * the rule that bound it: RULES in book.lua), 1 booked before (the standing booking), 2 conflict
--     (other digest), 3 in progress (claimed), 4 already sent, 5 cancelled, 6 failed, 7 expired, 8 unknown, 9 past the
--     deadline (wait: until the slot it would get), 10 too far (wait: until that slot), 11 cost too large (position: the
--     largest cost allowed), 12 unknown lane, 13 spacing needs a recipient, 14 full, its lane or its recipient (wait: until it may be
--     offered again), 15 booked while the budget is paused, 16 while it is paused without an end (wait: as if it went on now), 17 and 18:
--     such a booking that stands
local n = #ARGV
local out, i, records = { now, 0 }, 1

local header = call('GETRANGE', CAL, 0, HEADER_BYTES - 1)
if #header == HEADER_BYTES and string.byte(header, 63) == LAYOUT and string.byte(header, 64) % 4 < 2 then
  local base, epoch, num, den, switch, _, cool = sunpack('<I4I4I4I4I4I4d', header)
  local transit, u0, max_cost, horizon, dedup, expiry = sunpack('<I4I4I4I4I4I4', header, 65)
  out[2] = sunpack('<I4', header, 57)
  local digest, extended, cost, not_before, deadline = sunpack('<c8BI4dd', ARGV[1])
  local unit, start, now_s = cost, now + transit, floor(now / 1000000)
  local first, booked_at = floor(start / 1000000), floor(now % 1000000 / 10000) * 16
  -- Common case: calendar current, no cooldown, one ordinary cost that fits one second, no record yet, no not_before.
  if extended == 0 and cool <= now and first >= switch and first >= base and now_s - base - 10800 < max(0, expiry - 7200 - now_s)
    and unit <= u0 and unit <= max_cost and unit <= floor(num / den) then
    records = n > 1 and call('MGET', unpack(KEYS, 3, n + 2)) or { call('GET', KEYS[3]) }
    -- The cursor: for this cost, every second from cursor_first up to cursor_s was found full.
    local cursor_unit, cursor_first, cursor_s = sunpack('<I4I4I4', header, 117)
    local trusted = cursor_unit == unit and cursor_first <= first
    local seen, s, stored, high, room, rest, dirty, hint, chunk, chunk_at, ttl, last, elapsed, holes, bound = {}
    while i <= n do
      if i > 1 then digest, extended, cost, not_before, deadline = sunpack('<c8BI4dd', ARGV[i]) end
      local key, looks = KEYS[i + 2], 0
      if records[i] or seen[key] or extended ~= 0 or cost ~= unit or not_before > start then break end
      while not s or high + unit > room do
        if s or not trusted then
          local from = first - base
          if not hint then hint = string.sub(CAL, 1, -4) .. 'full:' .. num .. '/' .. den .. ':0:' .. unit end
          if s then
            if dirty then call('SETRANGE', CAL, HEADER_BYTES + (s - base) * 4, spack('<I4', stored)); dirty = false end
            if stored + unit > room then
              local hints = string.sub(CAL, 1, -4) .. 'hints'
              call('SETBIT', hint, s - base, 1)
              if call('SADD', hints, hint) == 1 then
                call('EXPIRE', hint, HINT_TTL)
                if call('SCARD', hints) > HINTS_MAX then call('DEL', call('SPOP', hints)) end
              end
            end
            s, looks = s + 1, looks + 1
            from = s - base
            if looks > 8 then break end
          end
          if looks < 2 then
            local f = call('BITPOS', hint, '0', from, '-1', 'BIT')
            if f < 0 then f = call('STRLEN', hint) * 8 end
            s = base + max(f, from)                       -- a missing key answers 0 whatever the start
          end
        else
          s = cursor_s > first and cursor_s or first
        end
        local index = s - base
        if not chunk or n == 1 or index >= chunk_at + 64 then
          chunk_at = index
          local from = HEADER_BYTES + index * 4
          chunk = call('GETRANGE', CAL, from, from + (n > 1 and 255 or 3))
        end
        local o = (index - chunk_at) * 4
        stored = #chunk >= o + 4 and sunpack('<I4', chunk, o + 1) or 0
        if stored >= HOLES then holes = true; break end
        local x = s % den
        local before = ceil(x * num / den)
        rest = before * den - x * num
        room = ceil((x + 1) * num / den) - before
        high, elapsed = stored, 0
        if s == first then
          elapsed = ceil(((start - s * 1000000) * num - rest * 1000000) / (den * 1000000))
          if elapsed > high then high = elapsed end
        end
        ttl = string.format('%d', s - now_s + dedup)      -- Redis formats a number anew for each call
      end
      if looks > 8 or holes then s = nil; break end
      local at = s * 1000000 + ceil((rest + high * den) * 1000000 / num)
      if deadline > 0 and at > deadline then
        out[i + 2] = spack('<BI4I4I4i8', 9, 0, s, high, at - now)
      elseif at - now > horizon * 1000000 then
        out[i + 2] = spack('<BI4I4I4i8', 10, 0, s, high, at - now)
      else
        local rule = (s > first or high > elapsed) and 1 or 0
        local origin = (s - now_s) * 2048 + booked_at + rule
        call('SET', key, spack(RECORD, 1, 0, 0, 0, 1, 0, unit, s, high, epoch, 0, origin, 0, digest), 'EX', ttl)
        out[i + 2] = spack('<BI4I4I4i8', rule * 32, 1, s, high, at - now)
        seen[key], last = true, s
        if deadline > 0 and room <= 16000 then            -- more positions fit no string.char
          bound = bound or {}
          local b = bound[s]
          if not b then b = { 4294967295 }; bound[s] = b end
          b[1], b[#b + 1] = min(b[1], floor(deadline / 1000000)), high
        end
        high = high + unit
        stored, dirty = high, true
      end
      i = i + 1
    end
    if s then
      if dirty then call('SETRANGE', CAL, HEADER_BYTES + (s - base) * 4, spack('<I4', stored)) end
      if s ~= cursor_s or not trusted then
        if not trusted or cursor_s < first then cursor_first = first end
        call('SETRANGE', CAL, 116, spack('<I4I4I4', unit, cursor_first, s))
      end
    end
    for bound_s, b in pairs(bound or {}) do               -- deadlines: see seconds.lua
      local name = string.sub(CAL, 1, -4) .. 'dl:' .. string.format('%.0f', floor(bound_s / 3600))
      local packed, bytes = call('HGET', name, bound_s), {}
      if packed then b[1] = min(b[1], (sunpack('<I4', packed))) end
      for j = 5, packed and #packed or 4 do bytes[j - 4] = string.byte(packed, j) end
      for j = 2, #b do
        for q = b[j], b[j] + unit - 1 do
          local byte, bit = floor(q / 8) + 1, 2 ^ (q % 8)
          for fill = #bytes + 1, byte do bytes[fill] = 0 end
          if floor(bytes[byte] / bit) % 2 == 0 then bytes[byte] = bytes[byte] + bit end
        end
      end
      call('HSET', name, bound_s, spack('<I4', b[1]) .. string.char(unpack(bytes)))
      if not packed then call('EXPIRE', name, 3600 + bound_s - now_s + dedup) end
    end
    if last and last > expiry - 3600 then                 -- the calendar outlives its last booking
      call('SETRANGE', CAL, 84, spack('<I4', last + 7200))
      call('EXPIRE', CAL, last + 7200 - now_s)
      call('HSET', POLICY, 'idle_after', last + 7200)
    end
    if i > n then return out end
  end
end
