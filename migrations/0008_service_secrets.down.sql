drop table manifold.service_secrets;
