"""Streams groups (KIP-1071): the members are clients of one Kafka Streams application and are given tasks. PURE.

topology.py    what the application reads, writes and keeps, as its clients describe it
configured.py  the topology held against the topics there are: tasks, internal topics, what is wrong
tasks.py       sets of tasks: active, standby, warm-up
assignor.py    which member is to have which tasks
members.py     a member, and the next step from the tasks it has to those it is to have
group.py       a group, and what records do to it
records.py     its records in `__consumer_offsets`
events.py      what can be asked, and what is answered
groups.py      the part of the group machine that decides
"""
