-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
-- @to int64: 9
-- @from int64: 5
set nocount on;
set lock_timeout 10000;
set xact_abort on;
update t set version = @to from manifold_documents.[order-summary.12] as t with (updlock, rowlock) where t.tenant_id = @tenant and t.build = @build and t.id_bytes = 0x and t.version = @from;
select @@rowcount;

-- and then

set nocount on;
set lock_timeout 10000;
set xact_abort on;
drop table if exists #manifold_stage;
create table #manifold_stage (id_bytes varbinary(512) not null primary key, id nvarchar(512) not null, version bigint not null, document nvarchar(max) not null, k0 varbinary(1001) not null, k1 varbinary(1001) not null);

-- and then

-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
set nocount on;
set lock_timeout 10000;
set xact_abort on;
insert into manifold_documents.[order-summary.12] (tenant_id, build, id_bytes, id, version, document, [key status], [key customer.name])
select @tenant, @build, b.id_bytes, b.id, b.version, b.document, b.k0, b.k1 from #manifold_stage as b
where not exists (select * from manifold_documents.[order-summary.12] as t where t.tenant_id = @tenant and t.build = @build and t.id_bytes = b.id_bytes)
option (loop join, force order);
if @@rowcount < (select count(*) from #manifold_stage)
update t set version = b.version, document = b.document, [key status] = b.k0, [key customer.name] = b.k1 from #manifold_stage as b
inner join manifold_documents.[order-summary.12] as t with (rowlock, forceseek) on t.tenant_id = @tenant and t.build = @build and t.id_bytes = b.id_bytes
where t.version < b.version
option (loop join, force order);
truncate table #manifold_stage;

-- and then

-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
-- @deletes mssql.NVarCharMax: [{"b":"676f6e65","v":8}]
set nocount on;
set lock_timeout 10000;
set xact_abort on;
delete t
from openjson(@deletes) with (id_bytes varchar(1024) '$.b', version bigint '$.v') as b
inner join manifold_documents.[order-summary.12] as t with (rowlock, forceseek) on t.tenant_id = @tenant and t.build = @build and t.id_bytes = convert(varbinary(512), b.id_bytes, 2)
where t.version < b.version
option (loop join, force order);
