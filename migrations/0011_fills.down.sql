alter table manifold.rebuilds drop column fills;
