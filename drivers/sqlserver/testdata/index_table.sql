-- @name string: manifold_documents.[order-summary.12]
set nocount on;
set lock_timeout 10000;
select c.name from sys.columns as c where c.object_id = object_id(@name) and (c.name like N'key %' or c.name like N'partition %')
order by c.column_id;

-- and then

if not exists (select * from sys.indexes where object_id = object_id(N'manifold_documents.[order-summary.12]') and name = N'key customer.name')
create index [key customer.name] on manifold_documents.[order-summary.12] (tenant_id, build, [key customer.name]);

-- and then

if not exists (select * from sys.indexes where object_id = object_id(N'manifold_documents.[order-summary.12]') and name = N'key customer.name desc')
create index [key customer.name desc] on manifold_documents.[order-summary.12] (tenant_id, build, [key customer.name] desc, id_bytes);
