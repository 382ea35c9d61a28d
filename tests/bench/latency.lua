-- For nginx: each URL is answered after a time of its own, the same each time, log-normal over all of them.
-- A sigma of 1 gives a mean of 0.66 s; one answer in 19 takes more than 2 s, and one in 22,000 the longest.
local MEDIAN, SIGMA, LONGEST = 0.4, 1, 20

local function between_0_and_1(digits)
  return (tonumber(digits, 16) + 0.5) / 2 ^ 32
end

local hash = ngx.md5(ngx.var.host .. ngx.var.request_uri)
local radius = math.sqrt(-2 * math.log(between_0_and_1(hash:sub(1, 8))))
local normal = radius * math.cos(2 * math.pi * between_0_and_1(hash:sub(9, 16)))
ngx.sleep(math.min(MEDIAN * math.exp(SIGMA * normal), LONGEST))
