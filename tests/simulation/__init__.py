"""A fleet in one process, on a mount, a clock and a web of the simulation's own; all of it follows from one number.

world      time and scheduling: processes with an event loop and threads, all of them steps of one queue
disk       the file server: a tree, what of it a sync has reached, and what a power cut leaves
mount      a machine's view of it, which lies as real mounts were measured to lie
system     `os` as the doors of crawler/store see it
web        a tree of pages
machine    a supervisor and its workers: the program's own classes
fleet      machines and operators
trouble    what happens to them; operators: what these do
checks     what must hold at each step, and in the end
manners    what sites are promised, at each request; memory: what a worker may hold
run        many numbers in a row; a failure is shrunk, and printed with the command that replays it
mutants    each invariant broken on purpose (breaks, breaks_of_data, breaks_of_manners), and which number finds it
crowd      a fleet of up to 10,000 workers without pages, most of them light ones (light), on a server with a queue
scale      how a fleet grows: the tables of manual/capacity.md
"""
