alter table manifold.tickets drop column token;
