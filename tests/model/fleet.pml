/* The protocol between workers: claim and take over, hand over, record, tidy, and the end of the crawl.

   Words as in manual/design.md. URL u is in shard u % 2 and links to u + 1; URL 0 is the seed. Every operation on a
   mount is a step of its own, and any other worker may do something between two. A batch holds one URL and is bit i of
   files[u]; a URL has at most N batches in its life. One worker may be killed or suspended at any moment. A suspended
   one may resume at any moment, and finishes the operation it was in, although others may own its shards by then.

   Checked: no batch is removed while its URL is neither done nor in another one; whoever takes over from the dead finds
   every URL that a record has brought; and when a worker concludes that the crawl is over, every URL is done.

   Broken on purpose:  -DRECORD_FIRST  the record before the hand-over    -DNO_REWRITE  what is inherited stays as it is
   -DONE_LOOK  the end from one look    -DSTALE  a listing may miss what is new    -DNOT_ALL  not all inboxes were read
   -DEAGER  tidying removes batches whose URLs are only known in memory    -DUNOWNED  the end although a shard has no owner
   -DOURS_IS_SAFE  an heir does not rewrite what it had handed over to the dead worker itself
   To see that the end can be reached at all:  -DNEVER_OVER */
#define W 2
#ifndef U
#define U 3
#endif
#ifndef N
#define N 3
#endif
#define FREE 7
#define HAS(set, i) (((set) >> (i)) & 1)
#define MINE(u) HAS(mine, (u) % 2)

byte files[U], used[U];                     /* batches on the mount; how many there ever were */
bool done[U];                               /* records on the mount */
byte own[2];                                /* names in shards/ */
bool killed[W], asleep[W], marked[W];       /* marked: declared dead, by the rename of its heartbeat */
bool idle[W]; byte said[W];                 /* how many arrivals, too: what the name of the last heartbeat says */
bool since[4];                              /* [observer * W + worker]: whether it has beaten since the observer's look */
bool began[4], polled[4], told[4];          /* its poll of all inboxes began after that; was ended; a heartbeat says so */
bool looked[W];                             /* whether an observer had a first look at all of them idle */
bool over, beyond;                          /* beyond: a URL would need more than N batches; not explored further */
byte troubles = 1, merges = 1;

/* Write a batch for URL x; `slot` is its number. */
inline write(x) {
  if :: used[x] < N -> slot = used[x]; files[x] = files[x] | (1 << slot); used[x]++ :: else -> beyond = 1 fi
}

/* What the record of u brought, u + 1, is done or waiting. */
inline nothing_is_lost() {
  k = 1; do :: k < U -> assert(beyond || !done[k - 1] || done[k] || files[k] != 0); k++ :: else -> break od; k = 0
}

inline forget() { k = 0; slot = 0; ok = 0 }

inline is_idle(answer) {
  answer = (flight == 0 && unsafe == 0 && !removing);
  k = 0; do :: k < U -> answer = answer && (home[k] == 0 || done[k]); k++ :: else -> break od; k = 0
}

/* A heartbeat: its name says whether we are idle, and what was polled; and what we conclude from those of the others. */
inline beat() {
  is_idle(ok);
  idle[me] = ok; said[me] = arrivals;
  k = 0; do :: k < W ->
       since[k * W + me] = looked[k]; told[k * W + me] = ok && polled[k * W + me]; k++
  :: else -> break od;
  if :: ok ->
       k = 0; do :: k < W -> ok = ok && (marked[k] || idle[k]); k++ :: else -> break od;
#ifndef UNOWNED
       ok = ok && own[0] != FREE && own[1] != FREE && !marked[own[0]] && !marked[own[1]];
#endif
       k = 0
  :: else -> k = 0 fi;
  if
  :: !ok -> look(0); first_alive = 0; first_marks[0] = 0; first_marks[1] = 0
  :: else ->
#ifdef ONE_LOOK
       over = 1;
#else
       slot = (1 - marked[0]) + 2 * (1 - marked[1]);
       if
       :: looked[me] && first_alive == slot && (marked[0] || first_marks[0] == said[0]) && (marked[1] || first_marks[1] == said[1]) ->
            k = 0; do :: k < W -> ok = ok && (marked[k] || told[me * W + k]); k++ :: else -> break od;
            over = ok
       :: else ->
            look(1); first_alive = slot; first_marks[0] = said[0]; first_marks[1] = said[1]
       fi;
#endif
       if
       :: over ->
#ifdef NEVER_OVER
            assert(0);
#endif
            k = 0; do :: k < U -> assert(beyond || done[k]); k++ :: else -> break od
       :: else
       fi
  fi; forget()
}

/* A first look, or none: what was counted since an earlier one is void. */
inline look(is) {
  looked[me] = is;
  k = 0; do :: k < W ->
       since[me * W + k] = 0; began[me * W + k] = 0; polled[me * W + k] = 0; told[me * W + k] = 0; k++
  :: else -> break od; k = 0
}

proctype worker(byte me) {
  byte mine, unsafe;                        /* shards that we believe to own; of those, which were inherited */
  byte read[U], ours[U], home[U];           /* batches in our table, those we wrote, and which one counts (+ 1) */
  byte flight, u, r, slot, k, batch, s;     /* a visit's step and URL; what is about to be removed */
  byte arrivals, beats;                     /* URLs that came; heartbeats that may still come while inboxes are read */
  bool removing, ready, thorough, ok, was;  /* ready: what was inherited is read, and can be rewritten */
  byte first_marks[W]; byte first_alive;
  do
  :: killed[me] || over || beyond -> break
  :: else ->
    if
    /* ---- shards */
    :: d_step { !asleep[me] && !marked[me] && (own[0] == FREE || (own[0] != me && marked[own[0]])) ->
         if :: own[0] != FREE -> unsafe = unsafe | 1; ready = 0; nothing_is_lost() :: else fi; own[0] = me; mine = mine | 1 }
    :: d_step { !asleep[me] && !marked[me] && (own[1] == FREE || (own[1] != me && marked[own[1]])) ->
         if :: own[1] != FREE -> unsafe = unsafe | 2; ready = 0; nothing_is_lost() :: else fi; own[1] = me; mine = mine | 2 }
    :: d_step { !asleep[me] && !marked[me] && (killed[1 - me] || asleep[1 - me]) && !marked[1 - me] -> marked[1 - me] = 1 }

    /* ---- a visit: take a URL and hand over its links; then the record */
    :: d_step { !asleep[me] && !marked[me] && flight == 0 ->
         u = 0; do :: u < U && !(home[u] != 0 && MINE(u) && !done[u]) -> u++ :: else -> break od;
         if
         :: u < U -> flight = 1;
#ifdef RECORD_FIRST
              done[u] = 1
#else
              if :: u + 1 < U -> write(u + 1)
#ifdef OURS_IS_SAFE
                   ; ours[u + 1] = ours[u + 1] | (1 << slot)
#endif
              :: else fi
#endif
         :: else -> u = 0
         fi; forget() }
    :: d_step { !asleep[me] && flight == 1 ->
#ifdef RECORD_FIRST
         if :: u + 1 < U -> write(u + 1) :: else fi;
#else
         done[u] = 1;
#endif
         flight = 0; u = 0; forget() }

    /* ---- tidying: decide what to remove; then remove it, however much later */
    :: d_step { !asleep[me] && !marked[me] && !removing && unsafe == 0 ->
         r = 0; batch = 0; ok = 0;
         do
         :: r < U && !ok ->
              ok = MINE(r) && HAS(read[r] & files[r], batch) &&
#ifdef EAGER
                   home[r] != 0;
#else
                   (done[r] || home[r] != batch + 1);
#endif
              if :: !ok && batch < N - 1 -> batch++ :: !ok && batch == N - 1 -> batch = 0; r++ :: else fi
         :: else -> break
         od;
         if :: ok -> removing = 1 :: else -> r = 0; batch = 0 fi; ok = 0 }
    :: d_step { !asleep[me] && removing ->
         files[r] = files[r] & (255 - (1 << batch));
         assert(beyond || done[r] || files[r] != 0);
         removing = 0; r = 0; batch = 0 }
    /* merging, once: a waiting URL is written to a new batch; the old one is removed later */
    :: d_step { !asleep[me] && !marked[me] && flight == 0 && merges > 0 ->
         merges--; k = 0; do :: k < U && !(MINE(k) && home[k] != 0 && !done[k] && used[k] < N) -> k++ :: else -> break od;
         if :: k < U -> write(k); home[k] = slot + 1; read[k] = read[k] | (1 << slot); ours[k] = ours[k] | (1 << slot)
         :: else fi; forget() }
    /* what was inherited is rewritten before anything is removed: one URL, or all are safe */
    :: d_step { !asleep[me] && !marked[me] && ready ->
#ifdef NO_REWRITE
         unsafe = 0; ready = 0
#else
         k = 0; do :: k < U && !(HAS(unsafe, k % 2) && home[k] != 0 && !done[k] && !HAS(ours[k], home[k] - 1)) -> k++ :: else -> break od;
         if
         :: k < U -> write(k); home[k] = slot + 1; read[k] = read[k] | (1 << slot); ours[k] = ours[k] | (1 << slot)
         :: else -> unsafe = 0; ready = 0
         fi; forget()
#endif
       }

    /* ---- the inboxes of our shards, one after the other, with heartbeats in between */
    :: d_step { !asleep[me] && !marked[me] && mine != 0 ->
         is_idle(was);
         thorough = (marked[1 - me] || idle[1 - me]) && idle[me];
#ifdef NOT_ALL
         thorough = 1;
#endif
         began[me] = since[me]; began[W + me] = since[W + me];
         beats = 1; s = 0 }
       do
       :: d_step { s < 2 && !asleep[me] ->
            k = s;
            do
            :: k < U && HAS(mine, s) ->
                 slot = 0;
                 do
                 :: slot < N ->
                      if
                      :: HAS(files[k], slot) && !HAS(read[k], slot) ->
                           read[k] = read[k] | (1 << slot);
                           if :: home[k] == 0 && !done[k] -> home[k] = slot + 1; arrivals++ :: else fi
                      :: else
                      fi; slot++
                 :: else -> break
                 od; k = k + 2
            :: else -> break
            od; forget(); s++ }
#ifdef STALE
       :: d_step { s < 2 && !asleep[me] -> s++ }
#endif
#ifdef NOT_ALL
       :: d_step { s == 1 && !asleep[me] -> s++ }
#endif
       :: d_step { beats > 0 && s < 2 && !asleep[me] && !marked[me] -> beats--; beat() }
       :: killed[me] || over || beyond -> break
       :: s == 2 -> break
       od;
       skip;
       d_step {
         if
         :: s != 2 || asleep[me] || marked[me] -> skip
         :: else ->
              is_idle(ok); ok = ok && was && thorough;
              polled[me] = ok && began[me]; polled[W + me] = ok && began[W + me];
              ready = (unsafe != 0);
              beat()
         fi;
         s = 0; was = 0; thorough = 0; beats = 0; forget() }
    fi
  od
}

/* Worker 1 is killed, or suspended for as long as it likes; or nothing happens. */
active proctype trouble() {
  do
  :: over || beyond -> break
  :: atomic { troubles > 0 -> troubles--; killed[1] = 1 }
  :: atomic { troubles > 0 -> troubles--; asleep[1] = 1 }
  :: atomic { asleep[1] && marked[1] -> asleep[1] = 0 }
  od
}

init { atomic { own[0] = FREE; own[1] = FREE; files[0] = 1; used[0] = 1; run worker(0); run worker(1) } }
