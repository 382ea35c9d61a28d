-- For wrk: asks for the URLs of a file in turn; with `close`, each on a connection of its own.
--   wrk -s urls.lua http://127.0.0.1/ -- FILE [close]
local requests, at = {}, 0

function init(args)
  for url in io.lines(args[1]) do
    local host, path = url:match("^%w+://([^/]+)(.*)$")
    requests[#requests + 1] = wrk.format("GET", path, { Host = host, Connection = args[2] or "keep-alive" })
  end
  math.randomseed(os.time())
  at = math.random(#requests)
end

function request()
  at = at % #requests + 1
  return requests[at]
end
