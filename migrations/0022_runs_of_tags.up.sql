-- A row has the tags of up to 32 consecutive events, in lines from that of the event at the row's position on. A line has
-- the tags joined by spaces; it is empty if the event has none, and the last lines may be missing. An event's line is in
-- the last row that begins at or before it. The rows so far have one event each.
alter table manifold.event_tags
  alter column tags type text collate "C" using array_to_string(tags, ' '),
  alter column derived type text collate "C" using array_to_string(derived, ' '); -- null: no line has any
