if not exists (select * from sys.indexes where object_id = object_id(N'manifold_documents.[order-summary.12]') and name = N'partition customer.id')
create index [partition customer.id] on manifold_documents.[order-summary.12] (tenant_id, build, [partition customer.id]);

-- and then

if not exists (select * from sys.indexes where object_id = object_id(N'manifold_documents.[order-summary.12]') and name = N'key status')
create index [key status] on manifold_documents.[order-summary.12] (tenant_id, build, [partition customer.id], [key status]);

-- and then

if not exists (select * from sys.indexes where object_id = object_id(N'manifold_documents.[order-summary.12]') and name = N'key status desc')
create index [key status desc] on manifold_documents.[order-summary.12] (tenant_id, build, [partition customer.id], [key status] desc, id_bytes);
