-- hints.lua: one bitmap per rate, lane view (0: lanes without a reservation) and exact cost; a set bit: this cost does not
-- fit in this second, until something comes back there. They may vanish at any time.
function load_hints()
  if C.next_open then return end
  local RUN_REACH = 300
  local hint_num, hint_den, hint_names = 0, 0, {}
  local function hint_of(s, view, units)
    local n, d = C.rate_at(s)
    if n ~= hint_num or d ~= hint_den then hint_num, hint_den, hint_names = n, d, {} end
    local id = view * 16777216 + units
    local hint = hint_names[id]
    if not hint then
      hint = PREFIX .. 'full:' .. n .. '/' .. d .. ':' .. view .. ':' .. units
      hint_names[id] = hint
    end
    return hint
  end

  local hint_known = {}
  -- the first second from s on that may have room
  function C.next_open(view, units, s, last_s)
    while true do
      local hint, stop, from = hint_of(s, view, units), C.next_rate(s), s - H.base
      local f = call('BITPOS', hint, '0', from, '-1', 'BIT')
      if f ~= 0 then hint_known[hint] = true end
      if f < 0 then f = call('STRLEN', hint) * 8 end
      f = H.base + max(f, from)                       -- a missing key answers 0 whatever the start
      if f < stop or stop > last_s then return f end
      s = stop
    end
  end

  local hint_marks, hint_order = {}, {}
  function C.mark_full(view, units, from, to)
    local hint = hint_of(from, view, units)
    to = min(to, C.next_rate(from) - 1)
    local t = hint_marks[hint]
    if not t then t = {}; hint_marks[hint] = t; hint_order[#hint_order + 1] = hint end
    local tail = t[#t]
    if tail and from >= tail[1] and from <= tail[2] + 1 then tail[2] = max(tail[2], to) else t[#t + 1] = { from, to } end
  end

  local function set_bits(hint, i, j, bit)
    local byte = bit == 1 and '\255' or '\0'
    while i <= j and i % 8 ~= 0 do call('SETBIT', hint, i, bit); i = i + 1 end
    local bytes = floor((j + 1 - i) / 8)
    if bytes > 0 then call('SETRANGE', hint, i / 8, string.rep(byte, bytes)); i = i + bytes * 8 end
    while i <= j do call('SETBIT', hint, i, bit); i = i + 1 end
  end

  function C.write_hints()
    local hints = PREFIX .. 'hints'
    for _, hint in ipairs(hint_order) do
      for _, range in ipairs(hint_marks[hint]) do set_bits(hint, range[1] - H.base, range[2] - H.base, 1) end
      if not hint_known[hint] then
        call('EXPIRE', hint, HINT_TTL)
        if call('SADD', hints, hint) == 1 and call('SCARD', hints) > HINTS_MAX then
          local gone = call('SPOP', hints)
          call('DEL', gone)
          hint_known[gone] = nil
        end
      end
    end
    hint_marks, hint_order = {}, {}
  end

  -- Places came back in seconds from..to: every hint forgets these, and a run's hint also those behind which a run over
  -- untouched seconds may end there: one for a heavy send that a second holds.
  function C.reopen(from, to)
    local _, held = C.holding(from)
    local ahead = { [0] = 0 }                         -- units that k untouched seconds before `from` offer
    for _, hint in ipairs(call('SMEMBERS', PREFIX .. 'hints')) do
      local n, d, units = string.match(hint, '(%d+)/(%d+):%d+:(%d+)$')
      local k = 0
      units = tonumber(units)
      while (units > floor(n / d) - held or k == 0 and units > H.u0) and ahead[k] < units and from - k > now_s and k < RUN_REACH do
        k = k + 1
        if not ahead[k] then
          local _, held_then = C.holding(from - k)
          ahead[k] = ahead[k - 1] + max(0, C.grid(from - k) - held_then)
        end
      end
      if k < RUN_REACH then
        set_bits(hint, max(0, from - k - H.base), to - H.base, 0)
      else
        call('DEL', hint)
        call('SREM', PREFIX .. 'hints', hint)
      end
    end
    hint_known, hint_marks, hint_order, H.cursor_unit, H.dirty = {}, {}, {}, 0, true
  end
end
