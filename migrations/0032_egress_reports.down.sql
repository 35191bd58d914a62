alter table manifold.members drop column egresses;
