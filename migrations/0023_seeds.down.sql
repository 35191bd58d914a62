alter table manifold.rebuilds drop column seeded;
