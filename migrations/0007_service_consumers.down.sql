drop table manifold.service_consumers;
