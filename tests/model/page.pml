/* One page on a disk that loses power: html, hand-over, sync, record; then the page is revisited and replaced.

   A file has what is seen of it, and what a power cut leaves. Between them is what was written since the last sync: a
   power cut keeps any part of that. A file whose bytes were not synced may come back torn. A sync may fail once (EIO):
   then what was written may be lost although it can still be read, and the next sync succeeds; so all is written anew.
   Values: 0 nothing, 1 the first version, 2 the second, TORN. The links of version v are batch bit v.

   Checked, whenever the power fails: the record is whole; its html is whole and at least as new; the links of the
   record's version are handed over; and the URL itself is done or waiting.

   Broken on purpose:  -DRECORD_FIRST   -DNO_SYNC before the record   -DNO_RECORD_SYNC before the URL's batch is removed
   -DREPLACE_UNSYNCED  the new html takes the name of the old one before its bytes are on the disk
   -DTRUST_SYNC  after a sync that failed nothing is written anew
   To see that the revisit can be finished at all:  -DNEVER_OVER */
#define TORN 3
#define HTML 0
#define RECORD 1
#define LINKS1 2
#define LINKS2 3
#define WAITING 4
#define FILES 5

byte seen[FILES], disk[FILES];       /* WAITING: the batch that holds this URL; 1 if it exists */
byte state[FILES];                   /* 0 on the disk, 1 waits for a sync, 2 lost by a sync that failed */
bool raw[FILES];                     /* whether its bytes were not synced when it took its name */
byte cuts = 2, failures = 1;
bool failed, restart, finished;

inline put(file, value, unsynced) { seen[file] = value; raw[file] = unsynced; state[file] = 1 }

inline settle(file) { disk[file] = seen[file]; state[file] = 0; raw[file] = 0 }

inline sync() {
  atomic {
    if
    :: k = 0; do :: k < FILES -> if :: state[k] == 1 -> settle(k) :: else fi; k++ :: else -> break od; failed = 0
    :: failures > 0 -> failures--; failed = 1;
       k = 0; do :: k < FILES -> if :: state[k] == 1 -> state[k] = 2 :: state[k] == 1 -> settle(k) :: else fi; k++ :: else -> break od
    fi; k = 0 }
}

/* After a sync that failed: write anew what may be lost. */
inline again(file) {
#ifdef TRUST_SYNC
  skip
#else
  if :: state[file] == 2 -> state[file] = 1 :: else fi
#endif
}

inline publish(version) { atomic { put(RECORD, version, 0) } }

#define OUT if :: restart -> goto begin :: else fi

proctype crawler() {
  byte k, version;
begin:
  atomic { restart = 0; failed = 0; k = 0; version = 1;
    if :: seen[RECORD] == 0 -> version = 1 :: seen[RECORD] == 1 && !seen[WAITING] -> version = 2 :: seen[RECORD] == 1 && seen[WAITING] -> version = 3 :: else -> version = 4 fi }
  do
  :: version == 3 -> goto tidy            /* done, and its batch is still there */
  :: version == 4 -> goto finish
  :: else -> break
  od;
visit:
#ifdef RECORD_FIRST
  publish(version); OUT;
#endif
  atomic {
#ifdef REPLACE_UNSYNCED
    put(HTML, version, 1)
#else
    put(HTML, version, seen[HTML] == 0)     /* what replaces a file is synced before it does */
#endif
  } OUT;
  atomic { put(LINKS1 + version - 1, version, 1) } OUT;
#ifndef NO_SYNC
  do
  :: sync(); OUT;
     if :: failed -> atomic { again(HTML); again(LINKS1 + version - 1); again(RECORD) } OUT;
#ifdef TRUST_SYNC
           break
#endif
     :: else -> break
     fi
  od;
#endif
#ifndef RECORD_FIRST
  publish(version); OUT;
#endif
tidy:
#ifndef NO_RECORD_SYNC
  do
  :: sync(); OUT; if :: failed -> atomic { again(HTML); again(LINKS1); again(LINKS2); again(RECORD) } OUT :: else -> break fi
  od;
#endif
  atomic { if :: seen[WAITING] -> put(WAITING, 0, 0) :: else fi } OUT;
  if :: seen[RECORD] == 1 -> version = 2; goto visit :: else fi;
finish:
  finished = 1;
#ifdef NEVER_OVER
  assert(0)
#endif
}

proctype power() {
  byte k;
  do
  :: finished -> break
  :: atomic { cuts > 0 && !finished -> cuts--;
       k = 0;
       do
       :: k < FILES ->
            if
            :: state[k] == 0 -> skip
            :: state[k] == 1 -> if :: raw[k] && seen[k] -> disk[k] = TORN :: disk[k] = seen[k] :: skip fi
            :: state[k] == 2 -> if :: raw[k] && seen[k] -> disk[k] = TORN :: skip fi
            fi;
            seen[k] = disk[k]; state[k] = 0; raw[k] = 0; k++
       :: else -> break
       od;
       k = 0;
       assert(seen[RECORD] != TORN);
       assert(seen[RECORD] == 0 || (seen[HTML] != TORN && seen[HTML] >= seen[RECORD]));
       assert(seen[RECORD] < 1 || seen[LINKS1] == 1);
       assert(seen[RECORD] < 2 || seen[LINKS2] == 2);
       assert(seen[RECORD] > 0 || seen[WAITING]);
       restart = 1 }
  od
}

init { atomic { seen[WAITING] = 1; disk[WAITING] = 1; run crawler(); run power() } }
