drop table manifold.command_outcomes;
alter table manifold.aggregates drop column commands;
